"""What providers say of their limits teaches the limit that a 429 would hold, for all workers and at little cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http.client import HTTPMessage
from typing import Any

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.gate import FULL_PACE, Gate, GateChange, GateRule
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Limit
from limpet.core.limits.pushback import Lesson, ceiling_of, lesson_of
from limpet.runtime import current_job
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench, now_ms

MODEL = Limit("model", rate="600/m", learns=True, adaptive=True)
HOUR_MS = 3_600_000
DATE = {"date": "Mon, 16 Nov 2026 10:00:00 GMT"}


class Response:
    def __init__(self, headers: object) -> None:
        self.headers = headers


class Refused(Exception):
    def __init__(self, headers: dict[str, str]) -> None:
        self.response = Response(headers)


def message(headers: dict[str, str]) -> HTTPMessage:
    """Headers as urllib and http.client have them: no mapping."""
    made = HTTPMessage()
    for name, value in headers.items():
        made[name] = value
    return made


class Unread:
    """A response whose body has not been read: asking for it would block."""

    def __init__(self) -> None:
        self.headers = {"retry-after": "2"}

    @property
    def content(self) -> bytes:
        pytest.fail("the body was asked for")

    body = text = _content = content


def openai(remaining: object, reset: str, limit: object = 600, what: str = "requests") -> dict[str, str]:
    return {
        f"X-RateLimit-Limit-{what}": str(limit),
        f"x-ratelimit-remaining-{what}": str(remaining),
        f"x-ratelimit-reset-{what}": reset,
    }


@pytest.mark.parametrize(
    ("said", "lesson"),
    [
        (openai(0, "6m0s"), Lesson(360_000, 600)),
        (openai(1, "6m0s"), Lesson(0, 600)),
        (openai(0, "1s", 40_000, "tokens"), Lesson(1_000)),
        (openai(0, "26h"), Lesson(HOUR_MS, 600)),
        (Response(openai(0, "20ms")), Lesson(20, 600)),
        (Refused({"retry-after-ms": "1500"}), Lesson(1_500)),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-16T10:00:12Z",
                **DATE,
            },
            Lesson(12_000, 50),
        ),
        ({"ResponseMetadata": {"HTTPHeaders": {"Retry-After": "2"}}}, Lesson(2_000)),
        (message({"Retry-After": "2"}), Lesson(2_000)),
        (Response(message({"Retry-After": "2"})), Lesson(2_000)),
        ({b"retry-after": b"2"}, Lesson(2_000)),
        (openai(0, "soon", "many"), Lesson()),
        (openai("none", "-5s", -3), Lesson()),
        (openai(0, "nan", "inf"), Lesson()),
        (openai(0, "0s", 0), Lesson()),
        ({3: None}, Lesson()),
        ({"ResponseMetadata": "none"}, Lesson()),
        (Response(7), Lesson()),
        (None, Lesson()),
    ],
)
def test_what_answers_teach(said: object, lesson: Lesson) -> None:
    assert lesson_of(said) == lesson


def test_the_body_of_a_response_is_not_asked_for() -> None:
    assert lesson_of(Unread()) == Lesson(2_000)


def test_a_ceiling_is_the_share_of_the_declared_rate_that_is_allowed() -> None:
    rule = MODEL.rule("model")
    assert [ceiling_of(rule, allowed) for allowed in (300, 599, 600, 14_400, 1)] == [500, 998, FULL_PACE, FULL_PACE, 1]
    assert ceiling_of(Limit("model", rate="600/m").rule("model"), 300) is None
    assert ceiling_of(Limit("model", concurrency=5, adaptive=True).rule("model"), 300) is None


class Counted(SqliteStore):
    """Remembers what gates are asked; fails to be asked when told so."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked: list[GateChange] = []
        self.away = False
        self.slowed = asyncio.Event()

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        if self.away:
            raise StoreUnreachable("away", verb="change_gates")
        self.asked += changes
        answer = await super().change_gates(changes, now_ms=now_ms)
        if any(change.ceiling for change in changes):
            self.slowed.set()
        return answer


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_empty_bucket_holds_the_key_and_a_lower_limit_slows_it(kind: str) -> None:
    bench = Bench(store := Counted())
    await store.open()

    reset = datetime.fromtimestamp(now_ms() / 1000 + 30, UTC).isoformat()
    headers = {
        "anthropic-ratelimit-requests-limit": "300",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": reset,
    }

    def calls() -> None:
        current_job().learn(Response(headers))
        current_job().run(store.slowed.wait())
        current_job().learn(headers)

    async def calls_in_the_loop() -> None:
        current_job().learn(Response(headers))
        await store.slowed.wait()
        current_job().learn(headers)  # the same again is not written again

    fn: Callable[[], Any] = calls if kind == "thread" else calls_in_the_loop
    id = await bench.put(bench.task(fn, limits=[Limit("other", concurrency=9), MODEL]))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    (gate,) = await store.gates("limit:model")
    assert gate.ceiling == 500
    assert 20_000 < gate.held_until_ms - now_ms() <= 30_000
    assert [(change.hold_ms is None, change.ceiling) for change in store.asked] == [(False, None), (True, 500)]
    await store.close()


async def test_an_operators_rate_is_what_a_ceiling_is_a_share_of_and_no_news_are_not_written() -> None:
    bench = Bench(store := Counted())
    await store.open()

    async def calls(allowed: int) -> None:
        current_job().learn(openai(5, "30s", allowed))

    spec = bench.task(calls, limits=[MODEL])
    await bench.put(spec, {"allowed": 600})
    await bench.drain()
    assert store.asked == []  # what the code declares is what is allowed
    slower = GateRule("limit:model", interval_us=200_000, burst=300, floor=100)
    await SqliteStore.change_gates(store, [GateChange("limit:model", rule=slower)])
    await bench.put(spec, {"allowed": 150})
    await bench.drain()
    # A worker that ends in the middle of a write writes it again.
    assert set(map(str, store.asked)) == {str(GateChange("limit:model", ceiling=500))}
    store.asked.clear()
    await bench.put(spec, {"allowed": 150})
    await bench.drain()
    assert store.asked == []
    await store.close()


async def test_what_cannot_be_written_or_read_is_not_the_jobs_problem(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(store := Counted())
    await store.open()
    store.away = True

    async def calls() -> None:
        current_job().learn(openai(0, "30s"))
        current_job().learn("an answer without headers")

    id = await bench.put(bench.task(calls, limits=[MODEL]))
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    said = [record.message for record in caplog.records]
    assert any("there is nothing to learn: no headers" in line and "of=str" in line for line in said)
    assert any("could not store a provider's limit gate=limit:model" in line for line in said)
    await store.close()
