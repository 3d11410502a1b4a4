"""Durable steps from end to end, on every engine: recorded, remembered, suspended, woken, forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet.core.flows.steps import Approval
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query
from limpet.core.tasks.codec import decode_json
from limpet.ops import Operator, Waits
from limpet.runtime import current_job
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.running import Bench


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


@pytest.fixture
def waits(bench: Bench) -> Waits:
    return Waits(bench.store, "ada")


async def result(bench: Bench, id: bytes) -> Any:
    view = await bench.view(id)
    assert view.state is State.succeeded, view
    return decode_json(view.result)


async def test_a_job_sleeps_waits_asks_and_remembers(bench: Bench, waits: Waits) -> None:
    ran: list[str] = []

    async def orders() -> list[object]:
        job = current_job()

        def reserve() -> str:
            ran.append("reserve")
            return job.step_key

        key = await job.step("reserve", reserve)
        await job.sleep(0.01, name="nap")
        paid = await job.wait_for("paid")
        said = await job.approval("Ship it?")
        assert isinstance(said, Approval)
        await job.step("ship", lambda: ran.append("ship"))
        return [key, paid, said.approved, said.by]

    id = await bench.put(bench.task(orders), unique="order:7")
    await bench.drain({"linger_ms": 10_000})
    view = await bench.view(id)
    assert (view.state, view.due_at_ms, view.attempt) == (State.scheduled, FOREVER_MS, 0)
    explanation = await Operator(bench.store, "ada").explain(id)
    assert explanation.reasons[0].text == "it waits for the event 'paid'"
    assert (await waits.signal("order:7", "paid", {"grüße": [1, None]})).answer == "woken"
    await bench.drain()
    (asked,) = (await waits.approvals(Query())).approvals
    assert (asked.id, asked.question) == (id_text(id), "Ship it?")
    assert (await waits.approve("order:7", comment="yes")).answer == "woken"
    await bench.drain()
    assert await result(bench, id) == [f"{id_text(id)}:reserve", {"grüße": [1, None]}, True, "ada"]
    assert ran == ["reserve", "ship"]
    assert (await waits.reject("order:7")).answer == "finished"
    assert (await waits.approvals(Query())).approvals == ()


async def test_code_that_changed_waits_for_a_person_who_lets_it_forget(bench: Bench) -> None:
    ran: list[str] = []
    code = {"before": ["plan", "pay"], "after": ["plan", "review", "pay"]}

    async def deployed() -> None:
        for name in code["before"]:
            await current_job().step(name, ran.append, name)
        code["before"] = code["after"]
        if len(ran) < 3:
            raise ConnectionError

    id = await bench.put(bench.task(deployed, retry=[0]))
    await bench.drain()
    assert (await bench.view(id)).error_type == "limpet.StepsChanged"
    assert ran == ["plan", "pay"]
    report = await Operator(bench.store, "ada").retry([id_text(id)], forget=["pay"])
    assert report.done == 1
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert ran == ["plan", "pay", "review", "pay"]


async def test_a_wait_that_is_over_and_a_sleep_that_a_person_ends(bench: Bench) -> None:
    async def waits_long() -> str:
        job = current_job()
        try:
            await job.wait_for("paid", timeout=0.01)
        except TimeoutError:
            await job.sleep("30d", name="month")
            return "after a month"
        return "paid"

    id = await bench.put(bench.task(waits_long))
    await bench.drain({"linger_ms": 10_000})
    operator = Operator(bench.store, "ada")
    assert (await operator.explain(id)).reasons[0].code == "sleeping"
    assert (await operator.retry([id_text(id)])).answers == {"retried": 1}
    await bench.drain()
    assert await result(bench, id) == "after a month"


async def test_large_results_of_many_steps_come_back(bench: Bench) -> None:
    def page(number: int) -> str:
        return f"{number}" * 10_000

    async def grows() -> int:
        job = current_job()
        pages = [await job.step(f"page-{n}", page, n) for n in range(40)]
        if job.attempt == 1:
            raise ConnectionError
        return sum(map(len, pages))

    id = await bench.put(bench.task(grows, retry=[0]))
    await bench.drain()
    assert await result(bench, id) == sum(len(f"{n}") * 10_000 for n in range(40))
