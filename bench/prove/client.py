"""Asks the questions: over HTTP of a real `limpet serve`, one connection each, and of Operator in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from statistics import median, quantiles
from urllib.parse import urlsplit

from msgspec import Struct

from bench.prove.questions import Question
from limpet.ops import Operator


class Taken(Struct, frozen=True):
    """How long the calls of one question took: the middle one, the 95th of a hundred, the longest."""

    median_ms: float
    p95_ms: float
    max_ms: float

    @classmethod
    def of(cls, took_ms: Sequence[float]) -> Taken:
        cuts = quantiles([*took_ms, *took_ms[:1]] if len(took_ms) == 1 else took_ms, n=100, method="inclusive")
        return cls(median(took_ms), cuts[94], max(took_ms))


class Answered(Struct, frozen=True):
    """One question, and how long its answer took on both ways."""

    title: str
    work: str
    http: Taken
    direct: Taken


@contextmanager
def served(url: str) -> Iterator[HTTPConnection]:
    """A connection to a server of our own on this store, which ends with the block."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    command = [sys.executable, "-m", "limpet.cli", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env={**kept, "LIMPET_URL": url}, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            banner = server.stdout.readline()
            if not banner:
                raise SystemExit("prove: limpet serve did not start; what it says is above")
            where = urlsplit(json.loads(banner)["listens"])
            with closing(HTTPConnection(where.hostname or "", where.port, timeout=600)) as line:
                yield line
        finally:
            server.terminate()


def over_http(line: HTTPConnection, path: str, calls: int) -> Taken:
    """From the request until the whole answer is read; the first call is among them, the connection is not."""
    line.close()  # the server has, if the question before took Operator longer than a server keeps an idle line
    line.connect()
    took_ms = []
    for _ in range(calls):
        at_s = time.perf_counter()
        line.request("GET", f"/api/v1{path}")
        answer = line.getresponse()
        body = answer.read()
        took_ms.append((time.perf_counter() - at_s) * 1000)
        if answer.status != 200:
            raise SystemExit(f"prove: {path} answers {answer.status}: {body.decode()}")
    return Taken.of(took_ms)


async def directly(operator: Operator, question: Question, calls: int) -> Taken:
    """The same without HTTP."""
    took_ms = []
    for _ in range(calls):
        at_s = time.perf_counter()
        await question.ask(operator)
        took_ms.append((time.perf_counter() - at_s) * 1000)
    return Taken.of(took_ms)
