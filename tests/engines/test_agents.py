"""Agents on every engine: jobs claimed together, notes, and an agent that is overtaken between two of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.core.access.refusal import OutOfScope
from limpet.core.errors import InvalidOption, JobNotFound, PayloadTooLarge
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.ops import Agents, Operator
from limpet.ops.agent_endings import Completed, Failed, Released
from limpet.records import ClaimRecord
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.between import Between
from tests.ops.making import claim, job, put
from tests.ops.whole import whole

ANY = Serves()
Verb = Callable[[Agents, ClaimRecord], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "heartbeat": lambda agents, held: agents.heartbeat(held.id, held.token),
    "checkpoint": lambda agents, held: agents.checkpoint(held.id, held.token, {"page": 9}),
    "progress": lambda agents, held: agents.progress(held.id, held.token, 9, 10, "late"),
    "complete": lambda agents, held: agents.complete(held.id, held.token, b'"late"', spent={"usd": 1}),
    "fail": lambda agents, held: agents.fail(held.id, held.token, "late", kind="permanent"),
    "release": lambda agents, held: agents.release(held.id, held.token, reason="late"),
    "block": lambda agents, held: agents.block(held.id, held.token, "late?", spent={"usd": 1}),
}


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fate", ["taken over", "succeeded", "waits again"])
async def test_an_agent_that_is_overtaken_before_it_writes_changes_nothing(store: Store, verb: str, fate: str) -> None:
    await put(store, job(), job())
    first, kept = await Agents(store).claim("late", ANY, most=2)
    seen: list[Any] = []

    async def overtake() -> None:
        other = Agents(store)
        await other.release(first.id, first.token)
        if fate != "waits again":
            (again,) = await other.claim("next", ANY)
            if fate == "succeeded":
                await other.complete(again.id, again.token, b"1")
        seen.append(await whole(store))

    writes = {
        "heartbeat": {"beat"},
        "checkpoint": {"save"},
        "progress": {"save"},
        "complete": {"save", "settle"},
        "block": {"save"},
    }
    between: Any = Between(store, writes.get(verb, {"settle"}), overtake)
    answer = await VERBS[verb](Agents(between), first)
    jobs, *rest = await whole(store)
    if verb == "heartbeat":  # which keeps what its claim still holds, and learns the next time that one job is gone
        assert (await VERBS[verb](Agents(store), first)).answer == "stale"
        assert jobs == seen[0][0]
    else:
        assert answer.answer == "stale"
        assert [jobs, *rest] == [*seen[0]]
    assert (await Agents(store).complete(kept.id, kept.token)).answer == "done"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_heartbeat_or_end_after_the_lease_ran_out_changes_nothing(store: Store, verb: str) -> None:
    now_ms = await store.now()

    def clock() -> int:
        return now_ms

    await put(store, job())
    await store.expire(now_ms=now_ms)
    (held,) = await Agents(store, clock=clock).claim("late", ANY, lease_ms=1_000)
    for _ in range(20):
        now_ms += 1_000
        await store.expire(now_ms=now_ms)
    (view,) = await store.get([id_bytes(held.id)])
    assert view is not None
    assert (view.state, view.lost) == (State.ready, 1)
    before = await whole(store)
    assert (await VERBS[verb](Agents(store, clock=clock, sweep=False), held)).answer == "stale"
    assert await whole(store) == before


async def test_jobs_claimed_together_share_a_lease_and_end_each_by_itself(store: Store) -> None:
    ids = await put(store, *(job(args={"n": n}) for n in range(4)))
    agents = Agents(store)
    held = await agents.claim("a1", ANY, most=3)
    assert [(each.id, each.args["n"]) for each in held] == [(id_text(id), n) for n, id in enumerate(ids[:3])]
    await agents.complete(held[0].id, held[0].token)
    await agents.heartbeat(held[1].id, held[1].token, lease_ms=120_000)
    (session,) = await store.sessions()
    assert (session.running, session.deadline_at_ms - session.beat_at_ms) == (2, 120_000)
    await agents.fail(held[1].id, held[1].token, "no", kind="permanent")
    (view,) = await store.get([ids[2]])
    assert view is not None
    assert view.state is State.running, "the end of one gives back no other"
    await agents.release(held[2].id, held[2].token)
    assert await store.sessions() == []
    states = [view.state for view in await store.get(ids) if view is not None]
    assert states == [State.succeeded, State.dead, State.ready, State.ready]


async def test_several_ends_in_one_call_are_answered_each(store: Store) -> None:
    await put(store, *(job() for _ in range(5)))
    agents = Agents(store, "token:ci")
    one, two, three = await agents.claim("a1", ANY, most=3)
    (other,) = await agents.claim("a2", ANY)
    unknown = "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b"
    answers = await agents.settle(
        [
            Completed(id=one.id, token=one.token, result=b"1"),
            Failed(id=two.id, token=two.token, message="bad", kind="permanent", type="BadPage", traceback="at page 3"),
            Released(id=three.id, token=three.token - 1),
            Completed(id=unknown, token=1),
            Completed(id=other.id, token=other.token),
            Completed(id=one.id, token=one.token, result=b"2"),
        ]
    )
    assert [each.answer for each in answers] == ["done", "done", "stale", "gone", "done", "stale"]
    (cause,) = await store.causes()
    assert cause.message == "bad"
    detail = await Operator(store, "ada").job(two.id)
    assert (detail.error, detail.history[-1].traceback) == ("BadPage", "at page 3")
    assert [view.running for view in await store.sessions()] == [1], "the first claim still holds one job"
    lines = [(line.kind, line.actor, line.data.get("agent")) for line in await Operator(store, "ada").audit()]
    assert lines[-3:] == [
        ("agent.complete", "token:ci", "a1"),
        ("agent.fail", "token:ci", "a1"),
        ("agent.complete", "token:ci", "a2"),
    ]
    assert await agents.settle([]) == []


async def test_a_bad_end_refuses_the_whole_call(store: Store) -> None:
    await put(store, job(policy=Policy(max_result_bytes=100)), job())
    agents = Agents(store)
    small, fine = await agents.claim("a1", ANY, most=2)
    before = await whole(store)
    ends = [Completed(id=fine.id, token=fine.token), Completed(id=small.id, token=small.token, result=b"1" * 101)]
    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        await agents.settle(ends)
    assert await whole(store) == before


async def test_what_an_agent_keeps_is_there_for_the_next(store: Store) -> None:
    await put(store, job())
    agents = Agents(store)
    (held,) = await agents.claim("a1", ANY)
    assert held.checkpoint is None
    for page in (1, 2):
        assert (await agents.checkpoint(held.id, held.token, {"page": page})).answer == "done"
    assert (await agents.progress(held.id, held.token, 2, 7, "page 2")).answer == "done"
    shown = await Operator(store, "ada").job(held.id)
    assert shown.progress is not None
    assert (shown.progress.done, shown.progress.total, shown.progress.message) == (2, 7, "page 2")
    await Operator(store, "ada").cancel([held.id], reason="stop")
    assert (await agents.checkpoint(held.id, held.token, {"page": 2})).cancel_requested
    with pytest.raises(PayloadTooLarge):
        await agents.checkpoint(held.id, held.token, "x" * 300_000)
    with pytest.raises(InvalidOption):
        await agents.progress(held.id, held.token, float("nan"))
    with pytest.raises(JobNotFound):
        await agents.progress("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", 1, 1)


async def test_the_next_claim_brings_the_checkpoint_and_what_failed(store: Store) -> None:
    await put(store, job())
    agents = Agents(store)
    (held,) = await agents.claim("a1", ANY)
    await agents.checkpoint(held.id, held.token, {"page": 2})
    await agents.fail(held.id, held.token, "no answer", type="Timeout")
    await Operator(store, "ada").retry([held.id])
    (again,) = await agents.claim("a2", ANY)
    assert (again.checkpoint, again.attempt) == ({"page": 2}, 2)
    (before,) = again.failed_before
    assert (before.error, before.message) == ("Timeout", "no answer")


async def test_a_claim_for_nobody_gives_back_what_it_got(store: Store) -> None:
    ids = await put(store, job(), job())
    over = asyncio.Event()

    async def leaves() -> None:
        over.set()

    between: Any = Between(store, {"claim"}, leaves)
    assert await Agents(between).claim("a1", ANY, most=2, over=over) == []
    between = Between(store, {"append"}, leaves)
    over.clear()
    assert await Agents(between).claim("a1", ANY, most=2, over=over) == []
    views = [view for view in await store.get(ids) if view is not None]
    assert [(view.state, view.attempt, view.lost) for view in views] == [(State.ready, 0, 0)] * 2
    assert await store.sessions() == []


async def test_a_claim_that_waits_ends_when_nobody_waits_for_it(store: Store) -> None:
    over = asyncio.Event()
    waiting = asyncio.create_task(Agents(store).claim("a1", ANY, wait_ms=600_000, over=over))
    while not any(session.idle for session in await store.sessions()):
        pass
    over.set()
    assert await asyncio.wait_for(waiting, 60) == []
    assert await store.sessions() == []


async def test_the_same_key_at_once_is_one_claim(store: Store) -> None:
    waiting = [asyncio.create_task(Agents(store).claim("a1", ANY, wait_ms=600_000, key="k")) for _ in range(2)]
    while not any(session.idle for session in await store.sessions()):
        pass
    await put(store, job(), job())
    done, _ = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    (first,) = [each for task in done for each in task.result()][:1]
    (again,) = await Agents(store).claim("a1", ANY, key="k")
    assert (again.id, again.token) == (first.id, first.token)
    assert (await store.count()).total(State.running) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await store.count()).total(State.running) == 1, "a call that ends without a job takes none along"
    assert (await Agents(store).complete(again.id, again.token)).answer == "done"


async def test_the_key_of_another_caller_is_another_key(store: Store) -> None:
    await put(store, job(), job())
    (one,) = await Agents(store, "token:a").claim("w", ANY, key="k")
    (two,) = await Agents(store, "token:b").claim("w", ANY, key="k")
    assert one.id != two.id


async def test_the_session_of_a_worker_is_its_own(store: Store) -> None:
    await put(store, job())
    (claimed,) = await claim(store, "w1")
    before = await whole(store)
    answer = await Agents(store).heartbeat(id_text(claimed.id), claimed.token, lease_ms=3_600_000)
    assert (answer.answer, answer.until) == ("done", None)
    assert await whole(store) == before


async def test_queues_outside_of_the_scope_are_out_of_reach(store: Store) -> None:
    await put(store, job(queue="mail"), job(queue="paper"))
    scoped, all_of_it = Agents(store, "token:m", queues=frozenset({"mail"})), Agents(store)
    with pytest.raises(OutOfScope, match="paper"):
        await scoped.claim("w", Serves(queues=("mail", "paper")))
    (mine,) = await scoped.claim("w", ANY, most=10)
    assert mine.queue == "mail"
    (other,) = await all_of_it.claim("w", ANY)
    before = await whole(store)
    for name, verb in VERBS.items():
        with pytest.raises(OutOfScope, match="scope of the token: mail"):
            await verb(scoped, other)
        assert await whole(store) == before, name
    with pytest.raises(OutOfScope):
        await scoped.settle([Released(id=mine.id, token=mine.token), Released(id=other.id, token=other.token)])
    assert await whole(store) == before
