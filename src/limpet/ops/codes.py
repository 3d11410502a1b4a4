"""Decides what each error code means outside Python: the one table of exit codes and HTTP statuses."""

from __future__ import annotations

from typing import Final, NamedTuple

from limpet.core.errors import LimpetError


class Meaning(NamedTuple):
    """What a code becomes for a shell and for an HTTP client."""

    exit: int
    status: int


OK: Final = Meaning(0, 200)
REFUSED: Final = Meaning(1, 409)
USAGE: Final = Meaning(2, 422)
NOT_FOUND: Final = Meaning(3, 404)
CONFLICT: Final = Meaning(4, 409)
UNREACHABLE: Final = Meaning(5, 503)
AUTH: Final = Meaning(6, 401)
TIMED_OUT: Final = Meaning(7, 504)
NOTHING: Final = Meaning(8, 204)
DOCTOR_WARNINGS: Final = Meaning(10, 200)
DOCTOR_ERRORS: Final = Meaning(11, 200)

MEANINGS: Final[dict[str, Meaning]] = {
    "limpet": REFUSED,
    "usage": USAGE,
    "invalid_task": USAGE,
    "invalid_option": USAGE,
    "invalid_arguments": USAGE,
    "import_failed": REFUSED,
    "invalid_query": USAGE,
    "payload_too_large": Meaning(2, 413),
    "not_serialisable": USAGE,
    "batch_too_large": Meaning(2, 413),
    "cycle_found": USAGE,
    "ambiguous_id": USAGE,
    "several_jobs": USAGE,
    "invalid_step": USAGE,
    "unknown_queue": NOT_FOUND,
    "unknown_name": NOT_FOUND,
    "unknown_task": REFUSED,
    "unknown_parent": NOT_FOUND,
    "job_not_found": NOT_FOUND,
    "flow_not_found": NOT_FOUND,
    "queue_draining": REFUSED,
    "queue_full": REFUSED,
    "budget_exceeded": REFUSED,
    "wrong_context": REFUSED,
    "unique_held": CONFLICT,
    "schedule_exists": CONFLICT,
    "schedule_busy": CONFLICT,
    "schedule_contended": CONFLICT,
    "schedule_declared": REFUSED,
    "stale_lease": CONFLICT,
    "lease_lost": CONFLICT,
    "store": Meaning(1, 500),
    "store_unreachable": UNREACHABLE,
    "store_timeout": UNREACHABLE,
    "store_full": Meaning(1, 507),
    "store_corrupt": Meaning(1, 500),
    "schema_outdated": Meaning(1, 503),
    "job": REFUSED,
    "job_dead": REFUSED,
    "job_cancelled": REFUSED,
    "result_timeout": TIMED_OUT,
    "step_failed": REFUSED,
    "steps_changed": REFUSED,
    "suspension_caught": REFUSED,
    "wait_timeout": TIMED_OUT,
    "nothing_to_claim": NOTHING,
}


def meaning_of(error: LimpetError) -> Meaning:
    """What an error means to the outside; a code that is not in the table counts as its family's."""
    family = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next((MEANINGS[code] for code in (error.code, *family) if code in MEANINGS), REFUSED)
