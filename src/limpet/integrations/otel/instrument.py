"""Adds spans to an app by its middleware, which no one pays for who does not ask for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from limpet import JobContext, Limpet, NewJob, RunningStep
from limpet.core.version import VERSION
from limpet.integrations.otel import names
from limpet.integrations.otel.endings import tell_ending
from limpet.stores.extras import install_line

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        NoOpTracerProvider,
        ProxyTracerProvider,
        SpanKind,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
        set_span_in_context,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ImportError as error:
    raise ImportError(f"{__name__} needs opentelemetry-api: {install_line('otel')}", name="opentelemetry") from error

# Of the W3C, whatever the program uses elsewhere: jobs are read by programs in other languages, too. No baggage: it may
# hold what should not be stored.
_FORMAT: Final = TraceContextTextMapPropagator()
_SILENT: Final = (ProxyTracerProvider, NoOpTracerProvider)  # the API without an SDK

Run = Callable[[], Awaitable[object]]


def instrument(app: Limpet, *, links_only: bool = False, tracer_provider: TracerProvider | None = None) -> None:
    """Make spans of the jobs of this app: call it once, next to the app, before its own middleware.

    A job carries the context of the span that enqueued it in its `meta` (`traceparent`). An attempt has that span as
    its parent and as a link; with `links_only` as a link alone, so that each attempt is a trace of its own. Without an
    SDK nothing is made. The spans go to `tracer_provider`, else to the program's.
    """
    spans = _Spans(tracer_provider, links_only=links_only)
    app.enqueue_middleware(spans.created)
    app.middleware(spans.processed)
    app.step_middleware(spans.stepped)


class _Spans:
    """The middleware of one app."""

    def __init__(self, provider: TracerProvider | None, *, links_only: bool) -> None:
        self._given = provider
        self._links_only = links_only
        self._known: tuple[TracerProvider, Tracer] | None = None

    def _tracer(self) -> Tracer | None:
        """None while there is no SDK; the program may set it up after the app was made."""
        provider = self._given or get_tracer_provider()
        if isinstance(provider, _SILENT):
            return None
        if self._known is None or self._known[0] is not provider:
            self._known = provider, provider.get_tracer("limpet", VERSION)
        return self._known[1]

    def created(self, job: NewJob) -> None:
        """A span where the job is enqueued; the job carries its context."""
        tracer = self._tracer()
        if tracer is None:
            return
        about = {**_operation("create", job.queue), names.TASK: job.task, names.PRIORITY: job.priority}
        span = tracer.start_span(f"create {job.queue}", kind=SpanKind.PRODUCER, attributes=about)
        _FORMAT.inject(job.meta, set_span_in_context(span))
        span.end()

    async def processed(self, job: JobContext, run: Run) -> object:
        """A span of one attempt."""
        tracer = self._tracer()
        if tracer is None:
            return await run()
        sent = _FORMAT.extract(job.meta)
        sender = get_current_span(sent).get_span_context()
        span = tracer.start_span(
            f"process {job.queue}",
            Context() if self._links_only else sent,
            SpanKind.CONSUMER,
            _of_attempt(job),
            [Link(sender)] if sender.is_valid else [],
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                return await run()
            except BaseException as error:
                tell_ending(span, job, error)
                raise

    async def stepped(self, step: RunningStep, run: Run) -> object:
        """A span of one try of a durable step that runs; what is remembered has none."""
        tracer = self._tracer()
        if tracer is None:
            return await run()
        about: dict[str, AttributeValue] = {names.STEP: step.name, names.TRY: step.tries, names.TASK: step.job.task}
        about[names.MESSAGE_ID] = step.job.id
        span = tracer.start_span(f"step {step.name}", attributes=about)
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                return await run()
            except BaseException as error:
                tell_ending(span, step.job, error)
                raise


def _operation(operation: str, queue: str) -> dict[str, AttributeValue]:
    return {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION: queue,
    }


def _of_attempt(job: JobContext) -> dict[str, AttributeValue]:
    about = {
        **_operation("process", job.queue),
        names.MESSAGE_ID: job.id,
        names.TASK: job.task,
        names.PRIORITY: job.priority,
        names.ATTEMPT: job.attempt,
        names.MAX_ATTEMPTS: job.max_attempts,
    }
    if job.flow is not None:
        about[names.CONVERSATION_ID] = job.flow
    if job.schedule is not None:
        about[names.SCHEDULE] = job.schedule
    return about
