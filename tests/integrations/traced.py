"""A program that is traced: a web process that takes orders, and the jobs of two more processes. Spans go to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from limpet import Limpet, current_job
from limpet.integrations.otel import instrument

FOLDER = Path(os.environ["TRACED_FOLDER"])


class Written(InMemorySpanExporter):
    """The SDK's own exporter, in a process that others cannot look into: it also writes each span to a file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with (FOLDER / f"{os.getpid()}.spans").open("a") as file:
            file.writelines(f"{span.to_json(indent=None)}\n" for span in spans)
        return super().export(spans)


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Written()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("traced")

app = Limpet()
instrument(app)


def charge(cents: int) -> int:
    with tracer.start_as_current_span("ask the bank"):
        return cents


@app.task(name="bill", queue="bills", executor="process")
async def bill(cents: int) -> int:
    return await current_job().step("charge", charge, cents)


@app.task(name="order", queue="orders")
async def order(cents: int) -> str:
    return (await bill.enqueue(cents)).id


async def take(request: Request) -> JSONResponse:
    context = extract(request.headers)
    with tracer.start_as_current_span("POST /orders", context, SpanKind.SERVER):
        job = await order.enqueue((await request.json())["cents"])
    return JSONResponse({"job": job.id})


web = Starlette(routes=[Route("/orders", take, methods=["POST"])])
