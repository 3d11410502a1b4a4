"""Tasks as real engines list them: declared, renamed, known to live workers, or only asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from limpet.client.registry import publish
from limpet.core.jobs.job import PRIORITIES
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.minute import Minute, Tally
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.records.task import TaskRecord
from limpet.core.tasks.task import TaskSpec
from limpet.ops.names import UnknownName
from limpet.ops.operator import Operator
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import job, put
from tests.runtime.running import Bench


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


async def send(to: str, count: int = 1) -> None: ...


async def lines(bench: Bench) -> dict[str, TaskRecord]:
    return {line.task: line for line in await Operator(bench.store, "ada").tasks()}


async def test_a_task_is_listed_with_its_jobs_its_workers_and_their_last_minute(bench: Bench) -> None:
    spec = TaskSpec.declare(
        send,
        name="mail.send",
        aliases=["old.send"],
        queue="mail",
        priority="high",
        timeout=30,
        limits=[Limit("smtp", rate="10/m", concurrency=20)],
        breaker=Breaker(failures=3),
    )
    await publish(bench.store, [spec, *spec.under_aliases()])
    await put(bench.store, job("mail.send"), job("old.send"), job("asked.only"))
    for worker, ended in (("w1", {"succeeded": 6, "retried": 2}), ("w2", {"succeeded": 3, "dead": 1})):
        said = Minute(60.0, {"mail.send": Tally(ended, {40: 12}, {30: 12}), "old.send": Tally({"succeeded": 1})})
        info = msgspec.json.encode({"last_minute": said})
        await bench.store.beat(Beat(worker, 60_000, Serves(("mail",), ("mail.send", "old.send")), info))
    await bench.store.beat(Beat("agent", 60_000, Serves(None, ("other",)), b"not JSON"))
    found = await lines(bench)
    assert [*found] == ["asked.only", "mail.send", "other"]
    task = found["mail.send"]
    assert (task.queue, task.priority, task.timeout_s, task.aliases) == ("mail", 3, 30.0, ("old.send",))
    assert task.limits == ("smtp 10/m, 20 at once",)
    assert (task.workers, task.states["ready"]) == (2, 2), "jobs under its old name are its jobs"
    minute = task.last_minute
    assert (minute.finished, minute.failed, minute.failed_share) == (12.0, 3.0, round(3 / 14, 4))
    assert minute.run_p95_s == pytest.approx(1.0, rel=0.3)
    asked = found["asked.only"]
    assert (asked.declared, asked.queue, asked.workers, asked.states["ready"]) == (False, None, 0, 1)
    assert (found["other"].workers, found["other"].last_minute.finished) == (1, 0.0)
    assert (await Operator(bench.store, "ada").stats()).last_minute.finished == 12.0


async def test_one_task_is_shown_with_all_that_its_code_declares(bench: Bench) -> None:
    spec = TaskSpec.declare(send, name="mail.send", aliases=["old.send"], retry=[1, 10], unique=True, tags=["eu"])
    await publish(bench.store, [spec, *spec.under_aliases()])
    operator = Operator(bench.store, "ada")
    for name in ("mail.send", "old.send"):
        task = await operator.task(name)
        assert task.task == "mail.send"
        assert task.options["retry"] == {"attempts": 3, "delays": [1.0, 10.0]}
        assert (task.options["unique"], task.options["tags"]) == (True, ["eu"])
        assert task.options["priority"] == PRIORITIES["normal"]
        assert set(task.arguments["properties"]) == {"to", "count"}
        assert msgspec.json.decode(msgspec.json.encode(task.to_dict()))["last_minute"]["finished"] == 0
    adaptive = Limit("smtp", rate="10/m", adaptive=True, climb=30)
    keyed = TaskSpec.declare(send, name="keyed", breaker=Breaker("mail:{to}"), limits=[adaptive])
    await publish(bench.store, [keyed])
    task = await operator.task("keyed")
    assert (task.breaker, task.options["breaker"]["name"]) == ("mail:{to}", "mail:{to}")
    assert task.options["limits"] == [{"key": "smtp", "rate": "10/m", "adaptive": True, "climb": 30.0}]
    with pytest.raises(UnknownName, match=r"did you mean 'mail\.send'"):
        await operator.task("mail.sned")


def counted(found: dict[str, TaskRecord]) -> bool:
    fine, fails = (found[name].last_minute.ended for name in ("fine", "fails_once"))
    return fine == {"succeeded": 5} and fails.get("retried") == 1


async def test_a_worker_and_an_operator_agree_on_what_ended(bench: Bench) -> None:
    async def fine() -> None: ...

    async def fails_once() -> None:
        raise ConnectionError("no answer")

    specs = [bench.task(fine), bench.task(fails_once, retry=2)]
    ids = [await bench.put(specs[0]) for _ in range(5)]
    await bench.put(specs[1])
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 20}).run(stop))
    try:
        await bench.until(ids, State.succeeded)
        async with asyncio.timeout(60):
            while not counted(found := await lines(bench)):
                pass  # a beat says it soon
    finally:
        stop.set()
        await work
    assert found["fine"].last_minute.failed_share == 0
    assert found["fails_once"].last_minute.failed_share == 1
