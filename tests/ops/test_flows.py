"""Flows are read as one thing and corrected as one: cancelled, retried where they died, run again from a node on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import (
    AmbiguousId,
    Dead,
    FlowNotFound,
    InvalidOption,
    JobCancelled,
    Limpet,
    NodeHandle,
    QueueDraining,
    State,
    UnknownParent,
    chain,
)
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.view import Retention
from limpet.ops import Flows, Operator


class Shop:
    """An app whose tasks do as they are told, and remember what they were given."""

    def __init__(self, url: str) -> None:
        self.app = Limpet(url)
        self.bad: set[str] = set()
        self.ran: list[tuple[str, Any]] = []
        self.started, self.go_on = asyncio.Event(), asyncio.Event()

        @self.app.task(name="shop.step", retry=1)
        async def step(name: str, given: Any = None) -> str:
            self.ran.append((name, given))
            if name in self.bad:
                raise Dead(f"{name} is bad")
            return f"{name}{len(self.ran)}"

        @self.app.task(name="shop.hang", retry=1)
        async def hang(name: str, given: Any = None) -> str:
            self.started.set()
            await self.go_on.wait()
            return name

        self.step, self.hang = step, hang
        self.flows = Flows(self.app.store, "ada")

    async def work(self) -> None:
        await self.app.work(until_empty=True)

    def names(self) -> list[str]:
        """What has run since the last look."""
        found = [name for name, _ in self.ran]
        self.ran.clear()
        return found

    async def states(self, flow: bytes) -> dict[str, str]:
        return {node.name: node.view.state.value for node in (await self.flows.graph(flow)).nodes}

    async def diamond(self, **how: str) -> bytes:
        """top → left, right → bottom → end; `how` says what a failed parent means to a node."""
        flow = self.app.flow("diamond")
        made: dict[str, NodeHandle[str]] = {}
        for name, parents in (
            ("top", ()),
            ("left", ("top",)),
            ("right", ("top",)),
            ("bottom", ("left", "right")),
            ("end", ("bottom",)),
        ):
            options = {"if_parent_fails": how[name]} if name in how else {}
            task = self.step.options(**options)  # type: ignore[arg-type]  # one of three words
            made[name] = flow.add(task.job(name, [made[parent] for parent in parents]), name=name)
        await flow.enqueue()
        return id_bytes(flow.id)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    yield shop
    await shop.app.close()


async def test_the_newest_flows_come_first_and_page_by_page(shop: Shop) -> None:
    ids = [await shop.diamond() for _ in range(5)]
    await shop.work()
    waiting = await shop.diamond()
    first = await shop.flows.newest(limit=2)
    assert [line.id for line in first] == [waiting, ids[4]]
    assert [(line.name, line.state, line.done, line.total) for line in first] == [
        ("diamond", "running", 0, 5),
        ("diamond", "succeeded", 5, 5),
    ]
    assert first[0].counts == {State.ready: 1, State.blocked: 4}
    rest = await shop.flows.newest(limit=10, before=first[-1].id)
    assert [line.id for line in rest] == ids[3::-1]


async def test_a_flow_is_named_by_its_id_the_end_of_it_or_a_job(shop: Shop) -> None:
    id = await shop.diamond()
    (await shop.flows.graph(id)).node("left")
    for text in (id_text(id), id_text(id)[-8:], f"…{id_text(id)[-8:]}".upper()):
        assert await shop.flows.resolve(text) == id
    job = (await shop.flows.graph(id)).node("left").view.id
    assert await shop.flows.resolve(id_text(job)) == id
    lone = await shop.step.enqueue("lone")
    with pytest.raises(FlowNotFound, match="not a part of a flow"):
        await shop.flows.resolve(lone.id)
    with pytest.raises(FlowNotFound):
        await shop.flows.resolve("01900000-0000-7000-8000-000000000000")
    with pytest.raises(FlowNotFound):
        await shop.flows.resolve("ffff-000000000000"[-6:])
    with pytest.raises(FlowNotFound, match="not a job id"):
        await shop.flows.resolve("xyz")


async def test_the_end_of_an_id_that_two_flows_have_is_refused(shop: Shop) -> None:
    flows = [shop.app.flow("twin") for _ in range(2)]
    for number, flow in enumerate(flows):
        flow._raw = flow._raw[:8] + bytes([number]) + b"\xab" * 7
        flow.add(shop.step.job("x"))
        await flow.enqueue()
    with pytest.raises(AmbiguousId):
        await shop.flows.resolve("abababab")


async def test_a_node_is_named_by_its_name_or_its_job(shop: Shop) -> None:
    graph = await shop.flows.graph(await shop.diamond())
    left = graph.node("left")
    assert graph.node(id_text(left.view.id)) == graph.node(id_text(left.view.id)[-6:]) == left
    assert [node.name for node in graph.below([left])] == ["left", "bottom", "end"]
    assert [node.name for node in graph.ends] == ["end"]
    with pytest.raises(InvalidOption, match="did you mean 'left'"):
        graph.node("lift")


# -- cancel


async def test_a_flow_is_cancelled_whole_and_each_job_says_why(shop: Shop) -> None:
    id = await shop.diamond(end="run", bottom="wait")
    dry = await shop.flows.cancel(id, reason="wrong numbers", dry_run=True)
    assert (dry.matched, dry.done, len(dry.samples)) == (5, 0, 3)
    report = await shop.flows.cancel(id, reason="wrong numbers")
    assert (report.done, report.answers) == (5, {"cancelled": 5})
    graph = await shop.flows.graph(id)
    assert {(node.view.state, node.view.reason) for node in graph.nodes} == {(State.cancelled, "wrong numbers")}
    assert graph.state is State.cancelled
    await shop.work()
    assert shop.names() == []
    assert (await shop.flows.cancel(id)).matched == 0
    (entry, _) = await shop.app.store.read("audit")
    assert (entry.kind, entry.actor, entry.reason) == ("flow.cancel", "ada", "wrong numbers")
    assert msgspec.json.decode(entry.data)["flow"] == id_text(id)


async def test_running_jobs_are_asked_to_stop(shop: Shop) -> None:
    job = await chain(shop.hang.job("one"), shop.step.job()).enqueue()
    worker = asyncio.create_task(shop.app.work())
    await shop.started.wait()
    assert await job.flow.cancel("enough") == 2
    status = await job.flow.wait(timeout=60)
    assert (status.state, status.counts) == ("cancelled", {State.cancelled: 2})
    assert [node.reason for node in status.nodes] == ["enough", "enough"]
    with pytest.raises(JobCancelled, match="enough"):
        await job.flow.result()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


# -- retry


async def test_what_died_runs_again_with_what_its_death_cancelled(shop: Shop) -> None:
    shop.bad = {"left"}
    id = await shop.diamond()
    await shop.work()
    assert sorted(shop.names()) == ["left", "right", "top"]
    assert (await shop.flows.graph(id)).state is State.dead
    shop.bad = set()
    assert (await shop.flows.retry(id, dry_run=True)).matched == 1
    report = await shop.flows.retry(id, reason="fixed")
    assert (report.done, report.answers) == (1, {"retried": 1})
    await shop.work()
    assert shop.names() == ["left", "bottom", "end"]
    graph = await shop.flows.graph(id)
    assert (graph.state, graph.past, graph.done) == (State.succeeded, [], 5)
    assert (await shop.flows.retry(id)).matched == 0


async def test_a_flow_that_waits_for_review_goes_on_after_the_replay(shop: Shop) -> None:
    shop.bad = {"left"}
    id = await shop.diamond(bottom="wait")
    await shop.work()
    assert await shop.states(id) == {
        "top": "succeeded",
        "left": "dead",
        "right": "succeeded",
        "bottom": "blocked",
        "end": "blocked",
    }
    assert (await shop.flows.graph(id)).state is State.dead
    shop.bad = set()
    await shop.flows.retry(id)
    await shop.work()
    assert (await shop.flows.graph(id)).state is State.succeeded


async def test_a_node_and_all_below_it_run_again_with_the_results_of_what_stays(shop: Shop) -> None:
    id = await shop.diamond()
    await shop.work()
    before = {node.name: node.view for node in (await shop.flows.graph(id)).nodes}
    shop.ran.clear()
    dry = await shop.flows.retry(id, from_=["left"], dry_run=True)
    assert (dry.action, dry.matched) == ("run again", 3)
    report = await shop.flows.retry(id, from_=["left"], reason="new prices")
    assert (report.done, report.answers) == (3, {"enqueued": 3})
    graph = await shop.flows.graph(id)
    assert (graph.state, graph.done, graph.total) == (State.running, 2, 5)
    await shop.work()
    ran = dict(shop.ran)
    right = msgspec.json.decode(before["right"].result or b"")
    assert list(ran) == ["left", "bottom", "end"]
    assert ran["bottom"] == ["left1", right]
    graph = await shop.flows.graph(id)
    assert [(node.name, node.run) for node in graph.nodes] == [
        ("top", 1),
        ("left", 2),
        ("right", 1),
        ("bottom", 2),
        ("end", 2),
    ]
    assert (graph.state, graph.done) == (State.succeeded, 5)
    assert sorted(node.view.id for node in graph.past) == sorted(before[name].id for name in ("left", "bottom", "end"))
    line = await shop.flows.line(id)
    assert (line.state, line.done, line.total, line.counts) == ("succeeded", 5, 5, {State.succeeded: 5})
    kinds = [(entry.kind, entry.reason) for entry in await shop.app.store.read("audit")]
    assert kinds == [("flow.rerun", "new prices")]


async def test_a_part_may_run_again_and_again(shop: Shop) -> None:
    id = await shop.diamond()
    await shop.work()
    for _ in range(2):
        await shop.flows.retry(id, from_=["bottom"])
        await shop.work()
    await shop.flows.retry(id, from_=["right"])
    await shop.work()
    runs = {node.name: node.run for node in (await shop.flows.graph(id)).nodes}
    assert runs == {"top": 1, "left": 1, "right": 2, "bottom": 4, "end": 4}


async def test_of_two_who_ask_at_once_one_has_a_part_run_again(shop: Shop) -> None:
    id = await shop.diamond()
    await shop.work()
    shop.ran.clear()
    reports = await asyncio.gather(*(shop.flows.retry(id, from_=["bottom"]) for _ in range(3)))
    await shop.work()
    assert shop.names() == ["bottom", "end"]
    assert sum(report.done for report in reports) == 2
    assert await shop.flows.retry(id, from_=["bottom"])  # later, it is asked for anew
    await shop.work()
    assert shop.names() == ["bottom", "end"]


async def test_a_dead_node_that_is_replaced_is_no_dead_letter_any_more(shop: Shop) -> None:
    shop.bad = {"bottom"}
    id = await shop.diamond()
    await shop.work()
    shop.bad = set()
    await shop.flows.retry(id, from_=["top"])
    assert (await shop.app.store.count()).total(State.dead) == 0
    await shop.work()
    assert (await shop.flows.graph(id)).state is State.succeeded
    (entry,) = await shop.app.store.read("audit")
    assert "bottom is bad" in msgspec.json.decode(entry.data)["discarded"]["bottom"]["error"]


async def test_what_still_waits_is_cancelled_when_its_node_runs_again(shop: Shop) -> None:
    shop.bad = {"left"}
    id = await shop.diamond(bottom="wait")
    await shop.work()
    shop.bad = set()
    shop.ran.clear()
    await shop.flows.retry(id, from_=["left"])
    await shop.work()
    assert shop.names() == ["left", "bottom", "end"]
    past = (await shop.flows.graph(id)).past
    assert {node.name: node.view.reason for node in past} == {
        "bottom": "run again from left",
        "end": "run again from left",
    }


async def test_a_node_that_runs_is_in_the_way_unless_it_is_forced(shop: Shop) -> None:
    job = await chain(shop.step.job("first"), shop.hang.job(), shop.step.job()).enqueue()
    worker = asyncio.create_task(shop.app.work())
    await shop.started.wait()
    with pytest.raises(InvalidOption, match="hang is running"):
        await job.flow.retry("step")
    assert await job.flow.retry("hang", force=True) == 2
    shop.go_on.set()
    status = await job.flow.wait(timeout=60)
    assert (status.state, [node.run for node in status.nodes]) == ("succeeded", [1, 2, 2])
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_a_part_that_would_be_cancelled_at_once_is_refused(shop: Shop) -> None:
    shop.bad = {"left"}
    id = await shop.diamond()
    await shop.work()
    with pytest.raises(InvalidOption, match=r"bottom waits for left too, which is dead .run left again"):
        await shop.flows.retry(id, from_=["right"])
    shop.bad = set()
    assert (await shop.flows.retry(id, from_=["right", "left"])).done == 4
    await shop.work()
    assert (await shop.flows.graph(id)).state is State.succeeded


async def test_a_part_whose_parents_are_stored_no_more_is_refused(shop: Shop) -> None:
    shop.bad = {"bottom"}
    id = await shop.diamond()
    await shop.work()
    await shop.app.store.prune(Retention(succeeded_ms=0))
    assert await shop.states(id) == {"bottom": "dead", "end": "cancelled"}
    graph = await shop.flows.graph(id)
    assert (graph.done, graph.total) == (5, 5)
    with pytest.raises(UnknownParent, match="a parent of bottom is not stored any more"):
        await shop.flows.retry(id, from_=["bottom"])
    assert await shop.states(id) == {"bottom": "dead", "end": "cancelled"}
    await shop.flows.retry(id)
    waiting = {"bottom": "ready", "end": "blocked"}
    for dry_run in (True, False):  # what is refused stops nobody who waits
        with pytest.raises(UnknownParent, match="a parent of bottom is not stored any more"):
            await shop.flows.retry(id, from_=["bottom"], dry_run=dry_run)
        assert await shop.states(id) == waiting


async def test_a_part_whose_queue_is_draining_is_refused_and_goes_on(shop: Shop) -> None:
    job = await chain(shop.step.job("first"), shop.step.job()).enqueue()
    await Operator(shop.app.store, "ada").drain("queue:default")
    with pytest.raises(QueueDraining, match="queue default is draining"):
        await job.flow.retry("step")
    await shop.work()
    assert (await job.flow.status()).state is State.succeeded


async def test_what_runs_again_begins_no_sooner_than_it_was_to(shop: Shop) -> None:
    flow = shop.app.flow("later")
    first = flow.add(shop.step.job("first"), name="first")
    flow.add(shop.step.options(delay=3600, expires_in=7200).job("late", first), name="late")
    handle = await flow.enqueue()
    (before,) = [node.view for node in (await shop.flows.graph(id_bytes(handle.id))).nodes if node.name == "late"]
    await handle.retry("first")
    (after,) = [node.view for node in (await shop.flows.graph(id_bytes(handle.id))).nodes if node.name == "late"]
    assert after.due_at_ms == before.due_at_ms
    assert after.expires_at_ms == after.enqueued_at_ms + 7_200_000


async def test_a_key_that_another_job_holds_stops_a_second_run(shop: Shop) -> None:
    job = await chain(shop.step.options(unique="k").job("one"), shop.step.job()).enqueue()
    await shop.flows.cancel(id_bytes(job.flow.id))
    holder = await shop.step.options(unique="k", delay=60).enqueue("other")
    with pytest.raises(InvalidOption, match=f"job {holder.id} holds the unique key of step"):
        await job.flow.retry("step")
    await holder.cancel()
    assert await job.flow.retry("step") == 2
    again = await shop.step.options(unique="k").enqueue("other")
    assert again.existing


async def test_a_flow_that_waits_for_a_job_outside_goes_on_by_itself(shop: Shop) -> None:
    outside = await shop.step.options(delay=60).enqueue("outside")
    job = await chain(shop.step.options(after=[outside]).job("first"), shop.step.job()).enqueue()
    id = id_bytes(job.flow.id)
    assert [(await job.flow.status()).state, (await shop.flows.line(id)).state] == [State.running] * 2
    waits = await shop.step.options(after=[outside], if_parent_fails="wait").job("waits").enqueue()
    await outside.cancel()
    assert (await job.flow.status()).state is State.cancelled
    id = id_bytes(waits.flow.id)
    assert [(await waits.flow.status()).state, (await shop.flows.line(id)).state] == [State.blocked] * 2


async def test_no_flow_is_not_found(shop: Shop) -> None:
    nothing = shop.app.get_flow("01900000-0000-7000-8000-000000000000")
    for question in (nothing.status, nothing.result, nothing.cancel, nothing.retry, nothing.wait):
        with pytest.raises(FlowNotFound, match="no flow 01900000"):
            await question()
