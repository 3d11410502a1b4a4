"""Spans of jobs: where they are enqueued, of attempts and of steps, over processes and in each kind of task."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from limpet import Limpet, Secret, Snooze, current_job
from limpet.integrations.otel import instrument
from tests.server.asking import Wire
from tests.servers.process import free_port

WITHIN_S = 90.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Traced:
    """An app in memory whose spans are kept."""

    def __init__(self, *, links_only: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.app = Limpet("sqlite://")
        instrument(self.app, links_only=links_only, tracer_provider=provider)

    async def run(self, *tasks: Any) -> None:
        """Enqueue each in a span, and work until all have ended."""
        async with self.app:
            with self.tracer.start_as_current_span("request"):
                for task in tasks:
                    await task.enqueue()
            async with asyncio.timeout(WITHIN_S):
                await self.app.work(until_empty=True)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_an_attempt_has_the_span_that_enqueued_it_as_parent_and_as_link() -> None:
    traced = Traced()

    @traced.app.task(name="mail", queue="mails", priority="high")
    async def mail() -> None:
        with traced.tracer.start_as_current_span("smtp"):
            pass

    @traced.app.task(name="plain", queue="plain")
    def plain() -> None:
        with traced.tracer.start_as_current_span("in a thread"):
            pass

    await traced.run(mail, plain)
    for queue, inner in (("mails", "smtp"), ("plain", "in a thread")):
        created, processed = traced.span(f"create {queue}"), traced.span(f"process {queue}")
        assert parent_of(created) == id_of(traced.span("request"))
        assert parent_of(processed) == id_of(created)
        assert [link.context.span_id for link in processed.links] == [id_of(created)]
        assert parent_of(traced.span(inner)) == id_of(processed)
    mails = traced.span("process mails")
    assert (traced.span("create mails").kind, mails.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    about = dict(mails.attributes or {})
    assert len(str(about.pop("messaging.message.id"))) == 36
    assert about == {
        "messaging.system": "limpet",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mails",
        "limpet.task": "mail",
        "limpet.priority": 3,
        "limpet.attempt": 1,
        "limpet.max_attempts": 5,
    }


async def test_with_links_only_each_attempt_is_a_trace_of_its_own() -> None:
    traced = Traced(links_only=True)

    @traced.app.task(name="mail", queue="mails")
    async def mail() -> None: ...

    await traced.run(mail)
    created, processed = traced.span("create mails"), traced.span("process mails")
    assert processed.parent is None
    assert processed.context.trace_id != created.context.trace_id
    assert [link.context.span_id for link in processed.links] == [id_of(created)]


async def test_every_attempt_and_every_try_of_a_step_is_a_span_and_no_span_holds_a_secret() -> None:
    traced = Traced()
    tries: list[str] = []

    def charge(card: str) -> int:
        tries.append(card)
        if len(tries) < 2:
            raise ConnectionError(f"no answer for {card}")
        return 7

    @traced.app.task(name="pay", queue="pays", retry=[0.001])
    async def pay(card: Secret[str]) -> None:
        job = current_job()
        await job.step.options(retry=[0.001])("charge", charge, card.get_secret_value())
        if job.attempt == 1:
            raise ValueError(f"{card.get_secret_value()} was refused")
        raise Snooze(3600)

    async with traced.app:
        await pay.enqueue(Secret("4242-4242"))
        async with asyncio.timeout(WITHIN_S):
            while len(traced.spans("process pays")) < 2:  # a retry is due a moment later
                await traced.app.work(until_empty=True)
    first, second = traced.spans("process pays")
    assert [(span.attributes or {})["limpet.attempt"] for span in (first, second)] == [1, 2]
    assert parent_of(first) == parent_of(second) == id_of(traced.span("create pays"))
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "•••redacted••• was refused")
    assert (first.attributes or {})["error.type"] == "ValueError"
    assert (second.status.status_code, (second.attributes or {})["limpet.ending"]) == (StatusCode.UNSET, "snoozed")
    failed, paid = traced.spans("step charge")
    assert [(span.attributes or {})["limpet.step.try"] for span in (failed, paid)] == [1, 2]
    assert parent_of(failed) == parent_of(paid) == id_of(first), "the second attempt remembers it"
    assert (failed.status.status_code, paid.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert "Traceback" in str(failed.events[0].attributes)
    assert "4242" not in "".join(span.to_json() for span in traced.exporter.get_finished_spans())


async def test_a_job_that_sleeps_or_is_handed_back_has_not_failed() -> None:
    traced, runs = Traced(), asyncio.Event()

    @traced.app.task(name="naps", queue="naps")
    async def naps() -> None:
        await current_job().sleep(3600)

    @traced.app.task(name="waits", queue="waits")
    async def waits() -> None:
        runs.set()
        await asyncio.Event().wait()

    async with traced.app:
        await naps.enqueue()
        await traced.app.work(until_empty=True)
        await waits.enqueue()
        stop = asyncio.Event()
        working = asyncio.create_task(traced.app.work(stop=stop, grace=0.01))
        await runs.wait()
        stop.set()
        await working
    endings = {
        name: dict(traced.span(f"process {name}").attributes or {})["limpet.ending"] for name in ("naps", "waits")
    }
    assert endings == {"naps": "suspended", "waits": "handed back"}
    assert {span.status.status_code for span in traced.exporter.get_finished_spans()} == {StatusCode.UNSET}


async def test_without_an_sdk_nothing_is_made_and_nothing_is_carried() -> None:
    app, seen = Limpet("sqlite://"), list[dict[str, Any]]()
    instrument(app)

    @app.task(name="mail")
    async def mail() -> None:
        seen.append(dict(current_job().meta))

    async with app:
        await mail.enqueue()
        await app.work(until_empty=True)
    assert seen == [{}]


def test_an_app_that_does_not_ask_loads_nothing_of_it() -> None:
    script = "import limpet, sys; print([m for m in sys.modules if m.startswith(('opentelemetry', 'sentry'))])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "[]\n"


# -- across processes


@asynccontextmanager
async def started(env: dict[str, str], *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *words, env=env)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def test_one_trace_leads_from_an_http_request_to_a_step_over_three_processes(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    url = f"sqlite:///{tmp_path / 'jobs.db'}?sync=normal"
    env = {**kept, "LIMPET_URL": url, "TRACED_FOLDER": str(tmp_path)}
    port = free_port()
    web = ("uvicorn", "tests.integrations.traced:web", "--port", str(port), "--log-level", "warning")
    worker = ("limpet.cli", "worker", "tests.integrations.traced:app", "--log-level", "warning")
    async with asyncio.timeout(WITHIN_S), started(env, *web), started(env, *worker), Limpet(url) as app:
        job = msgspec.json.decode(await ordered(port))["job"]
        bill = await app.get(job).result(WITHIN_S)
        assert await app.get(bill).result(WITHIN_S) == 700
    files, spans = written_in(tmp_path)
    assert files == 3
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    by_id = {span["context"]["span_id"]: span for span in spans}
    (last,) = (span for span in spans if span["name"] == "ask the bank")
    way = [last["name"]]
    while (parent := by_id.get(last["parent_id"])) is not None:
        last = parent
        way.append(last["name"])
    assert last["parent_id"] == f"0x{SPAN}"
    assert way[::-1] == [
        "POST /orders",
        "create orders",
        "process orders",
        "create bills",
        "process bills",
        "step charge",
        "ask the bank",
    ]


def written_in(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """How many processes have written spans, and all of them."""
    files = list(folder.glob("*.spans"))
    return len(files), [msgspec.json.decode(line) for file in files for line in file.read_text().splitlines()]


async def ordered(port: int) -> bytes:
    """What the web process answers, once it takes requests."""
    asked = b'{"cents": 700}'
    while True:
        try:
            async with Wire(f"http://127.0.0.1:{port}") as wire:
                await wire.ask("POST", "/orders", {"traceparent": f"00-{TRACE}-{SPAN}-01"}, asked)
                return (await wire.answer()).raw
        except ConnectionError:
            await asyncio.sleep(0.05)
