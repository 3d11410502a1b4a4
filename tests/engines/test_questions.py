"""What agents ask people, on every engine: the job waits without a lease, and the answer reaches the next claim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet.core.errors import InvalidOption, InvalidStep
from limpet.core.flows.question import MOST
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.lease import Note, Serves
from limpet.core.jobs.state import State
from limpet.ops import Agents, Operator, Waits
from limpet.records import ClaimRecord
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.between import Between
from tests.ops.making import job, put

ANY = Serves()
QUESTION = "Which of the two accounts?"


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


def told(claimed: ClaimRecord) -> list[tuple[str, str, Any]]:
    return sorted((note.kind, note.name, note.body) for note in claimed.notes)


async def test_a_question_frees_the_lease_and_its_answer_reaches_the_next_claim(store: Store) -> None:
    rule = GateRule("limit:desk", concurrency=1)
    (id, _) = await put(store, job(limits=("desk",)), job(limits=("desk",)), rules=(rule,))
    agents, ada = Agents(store), Waits(store, "ada")
    (held,) = await agents.claim("a1", ANY)
    answer = await agents.fail(held.id, held.token, QUESTION, kind="needs-human", spent={"usd": 0.5})
    assert (answer.answer, answer.state, answer.text) == (
        "done",
        State.scheduled,
        "the job waits for an answer; claim another",
    )
    (other,) = await agents.claim("a2", ANY)
    assert other.id != held.id, "its slot is free"
    detail = await Operator(store, "ada").job(id)
    assert (detail.attempt, detail.due_at, detail.spent) == (0, None, {"usd": 0.5})
    words = str(await Operator(store, "ada").explain(id))
    assert f"it waits for an answer to: {QUESTION}" in words
    (asked,) = (await ada.asked()).approvals
    assert (asked.id, asked.kind, asked.question, asked.until) == (held.id, "question", QUESTION, None)
    said = await ada.answer(id, "the second one")
    assert (said.answer, said.text) == ("woken", f"job {held.id} continues")
    assert (await ada.answer(id, "the first one")).answer == "already"
    await agents.release(other.id, other.token)
    (again, *_) = await agents.claim("a2", ANY, key="k")
    if again.id != held.id:
        await agents.complete(again.id, again.token)
        (again,) = await agents.claim("a2", ANY)
    assert (again.attempt, again.attempts) == (1, held.attempts)
    assert [line for line in told(again) if line[0] != "spent"] == [
        ("event", "answer:1", {"answer": "the second one", "by": "ada"}),
        ("question", "answer:1", {"question": QUESTION, "by": "a1"}),
    ]
    kinds = [(line.kind, line.reason) for line in await Operator(store, "ada").audit() if line.job == held.id]
    assert ("agent.block", QUESTION) in kinds
    assert ("job.answer", "the second one") in kinds


async def test_each_question_has_an_answer_of_its_own(store: Store) -> None:
    (id,) = await put(store, job())
    agents, ada = Agents(store), Waits(store, "ada")
    for number, words in enumerate(("one", "two"), 1):
        (held,) = await agents.claim("a1", ANY)
        await agents.block(held.id, held.token, f"{words}?")
        assert (await ada.answer(id, words)).event == f"answer:{number}"
    (held,) = await agents.claim("a1", ANY)
    assert [body["answer"] for kind, _, body in told(held) if kind == "event"] == ["one", "two"]


async def test_an_answer_that_comes_before_the_job_waits_is_not_lost(store: Store) -> None:
    (id,) = await put(store, job())
    (held,) = await Agents(store).claim("a1", ANY)

    async def at_once() -> None:
        assert (await Waits(store, "ada").answer(id, "at once")).answer == "kept"

    between: Any = Between(store, {"settle"}, at_once)
    answer = await Agents(between).block(held.id, held.token, QUESTION)
    assert (answer.answer, answer.state) == ("done", State.ready)
    (again,) = await Agents(store).claim("a1", ANY)
    assert ("event", "answer:1", {"answer": "at once", "by": "ada"}) in told(again)


async def test_with_a_timeout_it_goes_on_without_an_answer(store: Store) -> None:
    await put(store, job())
    now_ms = await store.now()
    agents = Agents(store, clock=lambda: now_ms)
    (held,) = await agents.claim("a1", ANY)
    await agents.block(held.id, held.token, QUESTION, timeout_ms=60_000)
    assert "its time is over in" in str(await Operator(store, "ada").explain(held.id))
    assert await agents.claim("a1", ANY) == []
    now_ms += 61_000
    (again,) = await agents.claim("a1", ANY)
    assert [kind for kind, *_ in told(again)] == ["question"]
    assert (await Waits(store, "ada").answer(id_bytes(held.id), "late")).answer == "kept"
    await agents.complete(again.id, again.token)
    assert (await Waits(store, "ada").answer(id_bytes(held.id), "later")).answer == "finished"


async def test_what_makes_no_sense_is_refused_and_the_lease_stays(store: Store) -> None:
    (id, other) = await put(store, job(), job())
    agents, ada = Agents(store), Waits(store, "ada")
    (held,) = await agents.claim("a1", ANY)
    for refused in (
        agents.block(held.id, held.token, "  "),
        agents.fail(held.id, held.token, QUESTION, kind="needs-human", retry_after_ms=1),
        agents.fail(held.id, held.token, "no answer", timeout_ms=1),
    ):
        with pytest.raises(InvalidOption):
            await refused
    with pytest.raises(InvalidOption, match="asks nothing"):
        await ada.answer(other, "yes")
    with pytest.raises(InvalidStep, match="agent answer"):
        await ada.signal(id, "answer:1", {"answer": "forged", "by": "nobody"})
    assert (await agents.block(held.id, held.token - 1, QUESTION)).answer == "stale"
    assert (await agents.block(held.id, held.token, QUESTION)).answer == "done"
    with pytest.raises(InvalidOption, match=f"limpet agent answer {id_text(id)}"):
        await ada.approve(id)
    with pytest.raises(InvalidOption, match="the answer is"):
        await ada.answer(id, "")


async def test_questions_of_one_job_are_bounded(store: Store) -> None:
    (id,) = await put(store, job())
    agents = Agents(store)
    (held,) = await agents.claim("a1", ANY)
    note = Note("question", f"answer:{MOST}", b'{"question":"again?"}')
    assert await store.save(id, held.token, note)
    with pytest.raises(InvalidOption, match=f"{MOST} questions"):
        await agents.block(held.id, held.token, QUESTION)


async def test_agents_are_told_that_a_limit_is_held(store: Store) -> None:
    rule = GateRule("limit:openai", concurrency=9)
    await put(store, *(job(limits=("openai",)) for _ in range(3)), rules=(rule,))
    agents = Agents(store)
    (first,) = await agents.claim("a1", ANY)
    (other,) = await agents.claim("a2", ANY)
    assert (await agents.heartbeat(other.id, other.token)).held_limits == ()
    await agents.fail(first.id, first.token, "429", kind="rate-limited", retry_after_ms=60_000)
    beat = await agents.heartbeat(other.id, other.token)
    assert [one.limit for one in beat.held_limits] == ["openai"]
    assert "slow down, the provider holds back: openai for" in beat.text
