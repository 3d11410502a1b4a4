"""Decides what each error code means outside Python: the one table of exit codes, HTTP statuses and titles."""

from __future__ import annotations

from typing import Final, NamedTuple

from limpet.core.errors import LimpetError


class Meaning(NamedTuple):
    """What a code becomes for a shell and for an HTTP client; the title says it in a few words, always the same."""

    exit: int
    status: int
    title: str = ""


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
    "limpet": Meaning(1, 500, "Limpet failed"),
    # the caller is wrong
    "usage": Meaning(2, 422, "Wrong use"),
    "invalid_task": Meaning(2, 422, "Invalid task"),
    "invalid_option": Meaning(2, 422, "Invalid option"),
    "invalid_arguments": Meaning(2, 422, "Invalid arguments"),
    "unknown_attribute": Meaning(2, 422, "Unknown attribute"),
    "invalid_query": Meaning(2, 422, "Invalid query"),
    "invalid_step": Meaning(2, 422, "Invalid step"),
    "payload_too_large": Meaning(2, 413, "Payload too large"),
    "batch_too_large": Meaning(2, 413, "Batch too large"),
    "not_serialisable": Meaning(2, 422, "Not serialisable"),
    "cycle_found": Meaning(2, 422, "Jobs wait for each other"),
    "ambiguous_id": Meaning(2, 422, "More than one id fits"),
    "several_causes": Meaning(2, 422, "More than one cause fits"),
    "several_jobs": Meaning(2, 422, "More than one job fits"),
    # what is named does not exist
    "job_not_found": Meaning(3, 404, "No such job"),
    "flow_not_found": Meaning(3, 404, "No such flow"),
    "unknown_name": Meaning(3, 404, "Unknown name"),
    "unknown_queue": Meaning(3, 404, "Unknown queue"),
    "unknown_parent": Meaning(3, 404, "Unknown parent"),
    # it cannot be done now, or not like this
    "import_failed": Meaning(1, 500, "Import failed"),
    "unknown_task": Meaning(1, 409, "Task not declared"),
    "queue_draining": Meaning(1, 409, "Queue is draining"),
    "queue_full": Meaning(1, 429, "Queue is full"),
    "budget_exceeded": Meaning(1, 429, "Budget is spent"),
    "wrong_context": Meaning(1, 500, "Wrong context"),
    "schedule_declared": Meaning(1, 409, "Schedule is declared in code"),
    "schedule_exists": Meaning(4, 409, "Schedule exists"),
    "schedule_busy": Meaning(4, 409, "Schedule is busy"),
    "operation_over": Meaning(4, 409, "Operation is over"),
    "too_many_operations": Meaning(1, 429, "Too many operations"),
    "cause_changed": Meaning(4, 409, "Cause was changed meanwhile"),
    "schedule_contended": Meaning(4, 409, "Schedule was changed meanwhile"),
    # a request over the network is not allowed
    "access": Meaning(6, 403, "Not allowed"),
    "token_required": Meaning(6, 401, "Token required"),
    "token_invalid": Meaning(6, 401, "Token not valid"),
    "forbidden": Meaning(6, 403, "Role too small"),
    "out_of_scope": Meaning(6, 403, "Outside the token's queues"),
    "too_many_requests": Meaning(6, 429, "Too many requests"),
    "too_many_waiting": Meaning(6, 429, "Too many requests wait"),
    # a request over the network cannot be read, or asks for what there is not
    "invalid_request": Meaning(2, 422, "Invalid request"),
    "malformed_body": Meaning(2, 400, "Body is not JSON"),
    "unsupported_media_type": Meaning(2, 415, "Body is not declared as JSON"),
    "body_too_large": Meaning(2, 413, "Body too large"),
    "body_too_slow": Meaning(2, 408, "Body came too slowly"),
    "no_such_route": Meaning(3, 404, "Nothing at this path"),
    "method_not_allowed": Meaning(2, 405, "Method not allowed"),
    "idempotency_key_reused": Meaning(4, 409, "Idempotency key is of another request"),
    "idempotency_key_in_use": Meaning(4, 409, "Request is under way"),
    "record_changed": Meaning(4, 412, "Record was changed meanwhile"),
    "answer_not_kept": Meaning(4, 409, "Request was done before"),
    # the engine is in trouble
    "store": Meaning(1, 500, "Store failed"),
    "store_unreachable": Meaning(5, 503, "Store unreachable"),
    "store_timeout": Meaning(5, 503, "Store did not answer in time"),
    "store_full": Meaning(1, 507, "Store is full"),
    "store_corrupt": Meaning(1, 500, "Store is corrupt"),
    "schema_outdated": Meaning(1, 503, "Schema outdated"),
    # what became of a job, or of its attempt
    "job": Meaning(1, 409, "Job has no result"),
    "job_dead": Meaning(1, 409, "Job is dead"),
    "job_cancelled": Meaning(1, 409, "Job was cancelled"),
    "result_timeout": Meaning(7, 504, "Result not ready in time"),
    "lease_lost": Meaning(4, 409, "Lease lost"),
    "step_failed": Meaning(1, 409, "Step failed"),
    "steps_changed": Meaning(1, 409, "Steps changed"),
    "suspension_caught": Meaning(1, 500, "Suspension was caught"),
    "wait_timeout": Meaning(7, 504, "Event did not come in time"),
    # a worker or a relay ends
    "worker_failed": Meaning(1, 500, "Worker failed"),
    "worker_cut_off": Meaning(5, 503, "Worker is cut off"),
    "isolation_failed": Meaning(1, 500, "Process failed to start"),
    "unreadable": Meaning(1, 500, "Outbox row is unreadable"),
}


def meaning_of(error: LimpetError) -> Meaning:
    """What an error means to the outside; a code that is not in the table counts as its family's."""
    family = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next((MEANINGS[code] for code in (error.code, *family) if code in MEANINGS), MEANINGS["limpet"])


def http_status(error: LimpetError) -> int:
    """The HTTP status for an error, for views of your own.

    >>> from limpet import JobNotFound, http_status
    >>> http_status(JobNotFound("no such job"))
    404
    """
    if not isinstance(error, LimpetError):
        raise TypeError(f"http_status takes a LimpetError, got {type(error).__name__}: catch LimpetError")
    return meaning_of(error).status
