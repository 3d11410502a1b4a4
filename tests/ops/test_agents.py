"""Agents: claim, keep and settle one job at a time, each claim under a lease of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from limpet.core.errors import InvalidOption, JobNotFound, PayloadTooLarge
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Policy, Unique
from limpet.core.jobs.lease import Note, Serves, Wake
from limpet.core.jobs.state import State
from limpet.core.records.record import moment
from limpet.ops import Agents, Operator
from limpet.ops.agent_endings import FailKind
from limpet.records import ClaimRecord
from limpet.stores.base import Store
from tests.ops.making import claim, job, put

ANY = Serves()


@pytest.fixture
def agents(store: Store) -> Agents:
    return Agents(store)


async def got(agents: Agents, agent: str = "a1", serves: Serves = ANY, **more: Any) -> ClaimRecord:
    (claimed,) = await agents.claim(agent, serves, **more)
    return claimed


async def test_a_job_is_claimed_by_exactly_one_and_completed(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job(args={"n": 1}))
    claimed = await got(agents)
    assert await agents.claim("a2", ANY) == []
    answer = await agents.complete(id_text(id), claimed.token, b'{"ok":true}')
    assert (answer.answer, answer.state) == ("done", State.succeeded)
    (view,) = await store.get([id])
    assert view is not None
    assert view.result == b'{"ok":true}'
    assert await store.sessions() == []
    kinds = [(entry.kind, entry.actor) for entry in await store.read("audit")]
    assert kinds == [("agent.claim", "a1"), ("agent.complete", "a1")]


async def test_nothing_to_claim_leaves_no_session_behind(agents: Agents, store: Store) -> None:
    assert await agents.claim("a1", ANY, wait_ms=20) == []
    assert await store.sessions() == []


async def test_a_waiting_claim_is_woken_by_an_enqueue(agents: Agents, store: Store) -> None:
    waiting = asyncio.create_task(agents.claim("a1", ANY, wait_ms=600_000))
    while not any(session.idle for session in await store.sessions()):
        pass
    (id,) = await put(store, job())
    (claimed,) = await asyncio.wait_for(waiting, 60)
    assert claimed.id == id_text(id)


async def test_a_claim_that_waits_beats_and_does_not_ask_again(store: Store) -> None:
    asked: list[str] = []
    enough = asyncio.Event()

    class Counted:
        """A store whose waits are over at once, as if much time had passed."""

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return self.wait if name == "wait" else getattr(store, name)

        async def wait(self, session: str, timeout_ms: int) -> Wake:
            asked.append("wait")
            if asked.count("wait") > 20:
                enough.set()
                await asyncio.Event().wait()
            return Wake()

    counted: Any = Counted()
    waiting = asyncio.create_task(Agents(counted, sweep=False).claim("a1", ANY, wait_ms=600_000))
    await asyncio.wait_for(enough.wait(), 60)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert asked.count("claim") == 1
    assert asked.count("beat") > 20
    assert asked.count("expire") == 0
    assert await store.sessions() == []


async def test_an_agent_gets_only_what_it_can_do(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job(needs=("ops-security",)))
    assert await agents.claim("a1", Serves(capabilities=("eng-backend",))) == []
    assert (await got(agents, serves=Serves(capabilities=("ops-security",)))).id == id_text(id)


async def test_two_claims_of_one_agent_have_leases_of_their_own(agents: Agents, store: Store) -> None:
    await put(store, job(), job())
    one, two = await got(agents), await got(agents)
    await agents.release(one.id, one.token)
    views = await store.get([id_bytes(one.id), id_bytes(two.id)])
    assert [view.state for view in views if view is not None] == [State.ready, State.running]


async def test_the_same_key_again_answers_the_same_job(agents: Agents, store: Store) -> None:
    await put(store, job(), job())
    first = await got(agents, key="turn-1")
    again = await got(agents, key="turn-1")
    assert (again.id, again.token) == (first.id, first.token)


async def test_a_heartbeat_keeps_the_lease_and_says_cancel(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job())
    claimed = await got(agents)
    answer = await agents.heartbeat(id_text(id), claimed.token, lease_ms=120_000)
    assert (answer.answer, answer.cancel_requested) == ("done", False)
    (session,) = await store.sessions()
    assert session.deadline_at_ms - session.beat_at_ms == 120_000
    await Operator(store, "ada").cancel([id_text(id)], reason="stop")
    answer = await agents.heartbeat(id_text(id), claimed.token)
    assert answer.cancel_requested
    assert "release" in answer.text


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
async def test_a_stale_token_changes_nothing_and_says_the_next_step(agents: Agents, store: Store, verb: str) -> None:
    (id,) = await put(store, job())
    old = await got(agents)
    await agents.release(id_text(id), old.token)
    new = await got(agents, "a2")
    more = ("late",) if verb == "fail" else ()
    answer = await getattr(agents, verb)(id_text(id), old.token, *more)
    assert answer.answer == "stale"
    assert "held by a2" in answer.text
    assert "claim again" in answer.text
    (view,) = await store.get([id])
    assert view is not None
    assert (view.state, view.token) == (State.running, new.token)


async def test_a_finished_job_is_stale_and_an_unknown_one_not_found(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job())
    claimed = await got(agents)
    await agents.complete(id_text(id), claimed.token)
    assert (await agents.complete(id_text(id), claimed.token)).text.startswith("stale lease: job")
    with pytest.raises(JobNotFound):
        await agents.complete("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", 1)


async def test_transient_is_retried_permanent_is_dead(agents: Agents, store: Store) -> None:
    await put(store, job(), job())
    one, two = await got(agents), await got(agents)
    assert (await agents.fail(one.id, one.token, "no answer")).state is State.scheduled
    assert (await agents.fail(two.id, two.token, "bad address", kind="permanent")).state is State.dead
    (cause,) = await store.causes()
    assert cause.message == "bad address"


async def test_a_message_may_hold_any_text(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job())
    claimed = await got(agents)
    answer = await agents.fail(id_text(id), claimed.token, "caf\udce9", kind="permanent")
    assert answer.state is State.dead
    (view,) = await store.get([id])
    assert view is not None
    assert view.reason == "caf\\udce9"


async def test_the_last_attempt_is_dead(agents: Agents, store: Store) -> None:
    (id,) = await put(store, job(policy=Policy(attempts=1)))
    claimed = await got(agents)
    assert (await agents.fail(id_text(id), claimed.token, "no answer")).state is State.dead


@pytest.mark.parametrize("kind", ["rate-limited", "spent"])
async def test_pushback_is_about_the_limit_that_learns(agents: Agents, store: Store, kind: FailKind) -> None:
    rules = (
        GateRule("limit:first", concurrency=9),
        GateRule("limit:openai:small", concurrency=9, default_for_429=True),
    )
    await put(store, job(limits=("first",), keys=("openai:small",)), rules=rules)
    claimed = await got(agents)
    await agents.fail(claimed.id, claimed.token, "no", kind=kind, retry_after_ms=60_000)
    shut = {gate.key for gate in await store.gates("limit:") if gate.held_until_ms or gate.open_until_ms}
    assert shut == {"limit:openai:small"}


async def test_rate_limited_holds_the_key_and_spends_no_attempt(agents: Agents, store: Store) -> None:
    await put(store, job(limits=("openai",)), job(limits=("openai",)), rules=(GateRule("limit:openai", concurrency=9),))
    claimed = await got(agents)
    answer = await agents.fail(claimed.id, claimed.token, "429", kind="rate-limited", retry_after_ms=60_000)
    assert answer.state is State.ready
    assert await agents.claim("a2", ANY) == []
    assert "limit openai is held back" in str(await Operator(store, "ada").explain(claimed.id))


async def test_who_is_pushed_back_for_a_day_is_dead(store: Store) -> None:
    now_ms = 1_800_000_000_000
    agents = Agents(store, clock=lambda: now_ms)
    await store.enqueue([job(limits=("openai",))], [GateRule("limit:openai", concurrency=9)], now_ms=now_ms)
    ends: list[State | None] = []
    for _ in range(4):
        claimed = await got(agents)
        answer = await agents.fail(claimed.id, claimed.token, "429", kind="rate-limited", retry_after_ms=10 * 3_600_000)
        ends.append(answer.state)
        now_ms += 12 * 3_600_000
        if answer.state is State.dead:
            break
    assert ends == [State.ready, State.ready, State.dead]


async def test_spent_shuts_the_limit_until_someone_resets_it(agents: Agents, store: Store) -> None:
    await put(store, job(limits=("openai",)), job(limits=("openai",)), rules=(GateRule("limit:openai", concurrency=9),))
    claimed = await got(agents)
    answer = await agents.fail(claimed.id, claimed.token, "credit balance is too low", kind="spent")
    assert answer.state is State.ready
    assert await agents.claim("a2", ANY) == []
    operator = Operator(store, "ada")
    assert "limit openai is closed, because no money or quota is left there; one job probes" in str(
        await operator.explain(claimed.id)
    )
    (found,) = [finding for finding in await operator.doctor() if finding.code == "spent"]
    assert (found.level, found.fix) == ("error", "pay or raise the quota, then: limpet breakers reset limit:openai")
    assert [gate.key for gate in (await operator.gates.breakers()).breakers] == ["limit:openai"]
    await operator.reset("limit:openai", reason="paid")
    assert (await got(agents)).attempt == 1
    assert (await operator.gates.breakers()).breakers == ()


async def test_release_gives_the_attempt_back(agents: Agents, store: Store) -> None:
    await put(store, job())
    claimed = await got(agents)
    await agents.release(claimed.id, claimed.token, reason="not mine")
    assert (await got(agents)).attempt == 1


async def test_a_claim_brings_notes_and_parents_results(agents: Agents, store: Store) -> None:
    parent = job("make")
    child = msgspec.structs.replace(job("use"), after=(parent.id,))
    await put(store, parent, child)
    first = await got(agents)
    await agents.checkpoint(first.id, first.token, {"page": 3})
    await store.save(id_bytes(first.id), first.token, Note("step", "charge", b"1"))
    await agents.release(first.id, first.token)
    again = await got(agents)
    assert again.checkpoint == {"page": 3}
    assert [note.to_dict() for note in again.notes] == [{"kind": "step", "name": "charge", "body": 1}]
    await agents.complete(again.id, again.token, b"42")
    for _ in range(2):
        assert (await got(agents, key="k")).inputs == {id_text(parent.id): 42}


async def test_bad_input_is_refused(agents: Agents, store: Store) -> None:
    await put(store, job())
    claimed = await got(agents)
    with pytest.raises(PayloadTooLarge, match="300,000 bytes"):
        await agents.complete(claimed.id, claimed.token, b"1" * 300_000)
    with pytest.raises(InvalidOption, match="agent's name"):
        await agents.claim("a:1", ANY)


async def test_an_agent_gets_the_results_of_parents_where_the_arguments_refer_to_them(
    agents: Agents, store: Store
) -> None:
    parent = job("first")
    again = msgspec.structs.replace(parent, id=job().id)
    keyed = [msgspec.structs.replace(each, unique=Unique("k")) for each in (parent, again)]
    child = job("second", args={"a": {"$job": 1}, "all": {"$jobs": [0, 2]}}, after=(keyed[1].id, keyed[0].id))
    await put(store, keyed[0])
    await put(store, keyed[1], child)  # the first stands for the second
    first = await got(agents)
    await agents.complete(first.id, first.token, b'{"n":1}')
    for _ in range(2):  # claimed, and asked for again with the same key
        assert (await got(agents, key="same")).args == {"a": {"n": 1}, "all": [{"n": 1}, {"n": 1}]}


async def test_an_agent_is_told_when_the_results_of_parents_are_too_much(agents: Agents, store: Store) -> None:
    await put(store, job())
    (lone,) = await claim(store)
    heavy = msgspec.structs.replace(lone, args=b'{"a":{"$job":0}}', after=(b"p" * 16,))
    until = moment(1_800_000_000_000)
    assert not {"meta", "args_error", "checkpoint"} & set(ClaimRecord.of(lone, until=until).to_dict())
    shape = ClaimRecord.of(heavy, until=until).to_dict()
    assert shape["args"] == {"a": {"$job": 0}}
    assert "store its result elsewhere" in shape["args_error"]
