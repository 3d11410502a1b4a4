"""Decides what a span says of an attempt or a step that ended by an exception: an error, or another word for it."""

from __future__ import annotations

import asyncio
from typing import Final

from limpet import Cancel, JobContext, RateLimited, Snooze
from limpet.core.endings.failure import message_of, traceback_of, type_name
from limpet.integrations.otel import names
from limpet.runtime.suspension import Suspension
from limpet.stores.extras import install_line

try:
    from opentelemetry.trace import Span, Status, StatusCode
except ImportError as error:
    raise ImportError(f"{__name__} needs opentelemetry-api: {install_line('otel')}", name="opentelemetry") from error

# What a handler raises and means no failure by.
_NO_FAILURE: Final[dict[type[BaseException], str]] = {
    Suspension: "suspended",
    Snooze: "snoozed",
    RateLimited: "held",
    Cancel: "cancelled",
}
# The same of a handler that was stopped, by the reason of the stop; out of time is a failure.
_STOPPED: Final = {"cancel": "cancelled", "shutdown": "handed back", "lease": "handed back", "lost": "lost"}


def tell_ending(span: Span, job: JobContext, error: BaseException) -> None:
    """Write it on the span; no text holds a secret of the job."""
    if not span.is_recording():
        return
    ending = _without_failure(job, error)
    if ending is not None:
        span.set_attribute(names.ENDING, ending)
        return
    kind, message = type_name(error), job.hide(message_of(error))
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, message))
    told = {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message}
    span.add_event(names.EXCEPTION, {**told, names.EXCEPTION_STACKTRACE: job.hide(traceback_of(error))})


def _without_failure(job: JobContext, error: BaseException) -> str | None:
    for kind, ending in _NO_FAILURE.items():
        if isinstance(error, kind):
            return ending
    if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
        return _STOPPED.get(job.stop_reason or "")
    return None
