"""Sends Sentry one event for each dead job, and lets its other events name the job that runs, without its secrets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from limpet import JobContext, JobNotFound, JobRecord, Limpet
from limpet.core.records.job import AttemptRecord
from limpet.ops import Operator
from limpet.runtime.log_writer import WORKER
from limpet.stores.extras import install_line

try:
    import sentry_sdk
    from sentry_sdk.scope import add_global_event_processor
    from sentry_sdk.types import Event, Hint
except ImportError as error:
    raise ImportError(f"{__name__} needs sentry-sdk: {install_line('sentry')}", name="sentry_sdk") from error

HOOK: Final = "hook:limpet.sentry"
_FRAME: Final = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
_ELSEWHERE: Final = ("/site-packages/", "/dist-packages/", "/lib/python")  # in paths of code that is not the app's


def instrument(app: Limpet) -> None:
    """Tell Sentry of the dead jobs of this app: call it once, next to the app, after `sentry_sdk.init(...)`.

    The step that ends a job stores a hook, and the hook makes the event: one for each death, none for a retry, also
    when the worker was killed. The worker's own log lines about jobs become no events of the SDK's logging integration.
    """
    add_global_event_processor(_without_our_lines)
    app.middleware(_in_scope)

    @app.on_dead(name=HOOK)
    async def report(job: JobRecord) -> None:
        client = sentry_sdk.get_client()
        if client.is_active():
            attempt = await _fatal_attempt(app, job)
            sentry_sdk.capture_event(event_of(job, attempt, with_args=client.should_send_default_pii()))


def event_of(job: JobRecord, attempt: AttemptRecord | None, *, with_args: bool) -> Event:
    """The event for a job that is dead; its record shows no secret. The same death has the same id."""
    seed = f"{job.id} {job.finished_at}".encode()
    about: dict[str, Any] = {
        "id": job.id,
        "attempt": job.attempt,
        "attempts": job.attempts,
        "lost": job.lost,
        "priority": job.priority,
        "enqueued_at": job.enqueued_at.isoformat(),
        **({"args": job.args, "meta": job.meta} if with_args else {}),
    }
    event: Event = {
        "event_id": blake2b(seed, digest_size=16).hexdigest(),
        "level": "error",
        "logger": "limpet",
        "transaction": job.task,
        "tags": {"limpet.task": job.task, "limpet.queue": job.queue, "limpet.job": job.id},
        "contexts": {"limpet": about},
        "exception": {"values": [_exception(job, attempt)]},
    }
    if job.finished_at is not None:
        event["timestamp"] = job.finished_at
    if job.cause:
        event["fingerprint"] = ["limpet", job.cause]  # one issue for each cause that `limpet dead` lists
    if attempt is not None and attempt.traceback:
        event["extra"] = {"traceback": attempt.traceback}
    return event


def _exception(job: JobRecord, attempt: AttemptRecord | None) -> dict[str, Any]:
    module, _, name = (job.error or "Dead").rpartition(".")
    frames = [*frames_of(attempt.traceback)] if attempt is not None and attempt.traceback else []
    return {
        "type": name,
        "module": module or None,
        "value": job.reason or "",
        "mechanism": {"type": "limpet", "handled": False},
        **({"stacktrace": {"frames": frames}} if frames else {}),
    }


def frames_of(traceback: str) -> Iterator[dict[str, Any]]:
    """The frames of the last exception in a traceback, as Sentry has them: no local variables, which may be secret."""
    lines = traceback.splitlines()
    begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (")]
    for number, line in enumerate(lines[begins[-1] :] if begins else [], begins[-1] if begins else 0):
        found = _FRAME.match(line)
        if found is None:
            continue
        shown = lines[number + 1] if number + 1 < len(lines) else ""
        yield {
            "filename": found["file"],
            "abs_path": found["file"],
            "lineno": int(found["line"]),
            "function": found["function"],
            "in_app": not any(part in found["file"] for part in _ELSEWHERE),
            **({"context_line": shown[4:]} if shown.startswith("    ") else {}),
        }


async def _fatal_attempt(app: Limpet, job: JobRecord) -> AttemptRecord | None:
    """The attempt in which the job died; None when it died otherwise, or is gone."""
    with suppress(JobNotFound):
        detail = await Operator(app.store, "sentry").job(job.id)
        for attempt in reversed(detail.history):
            if attempt.outcome == "dead" and attempt.number == job.attempt:
                return attempt
    return None


def _without_our_lines(event: Event, hint: Hint) -> Event | None:
    """Drop what the logging integration made of a worker's line about a job: its death has an event of its own."""
    said = (event.get("extra") or {}).get("limpet")
    ours = event.get("logger") == WORKER and isinstance(said, dict) and "job_id" in said
    return None if ours else event


async def _in_scope(job: JobContext, run: Callable[[], Awaitable[object]]) -> object:
    """What the app itself sends while the job runs names it, and holds none of its secrets."""
    if job.task == HOOK:
        return await run()  # its event names the job that died

    def about(event: Event, hint: Hint) -> Event | None:
        found = _hidden(event, job.hide)
        return found if isinstance(found, dict) else event  # type: ignore[return-value]  # as it came

    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(job.task)
        scope.set_tags({"limpet.task": job.task, "limpet.queue": job.queue, "limpet.job": job.id})
        scope.add_event_processor(about)
        return await run()


def _hidden(value: object, hide: Callable[[str], str]) -> object:
    match value:
        case str():
            return hide(value)
        case dict():
            return {name: _hidden(each, hide) for name, each in value.items()}
        case list() | tuple():
            return [_hidden(each, hide) for each in value]
    return value
