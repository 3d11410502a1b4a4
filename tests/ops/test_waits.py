"""What is said to jobs that wait: signals, decisions of people, who waits for them; and steps that are forgotten."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Bury, Failure, Succeed, Suspend
from limpet.core.errors import InvalidOption, InvalidStep, JobNotFound, PayloadTooLarge
from limpet.core.flows.steps import Record
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import MAX_EVENTS, Note, Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView, Query
from limpet.core.records.job import steps_of
from limpet.core.text.duration import instant_ms
from limpet.ops import Operator, Waits, parse_query
from limpet.ops.waits import SeveralJobs
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.ops.making import claim, job, put
from tests.ops.suspended import asks, suspend

HOUR_MS = 3_600_000
ALL = Query(newest_first=False)


@pytest.fixture
def waits(store: SqliteStore) -> Waits:
    return Waits(store, "ada")


async def view_of(store: Store, id: bytes) -> JobView:
    (view,) = await store.get([id])
    assert view is not None
    return view


async def test_a_signal_is_answered_in_words_and_logged(waits: Waits, store: Store, operator: Operator) -> None:
    id = await suspend(store, "wait", "paid", event="paid")
    said = await waits.signal(id_text(id), "paid", {"amount": 7})
    assert (said.answer, said.event, said.id) == ("woken", "paid", id_text(id))
    assert said.text == f"job {id_text(id)} continues"
    assert (await waits.signal(id, "paid", 8)).text.endswith("was given 'paid' before, and the first value stays")
    assert (await waits.signal(id, "other")).answer == "kept"
    (claimed,) = await claim(store)
    assert ("event", "paid", b'{"amount":7}') in {(note.kind, note.name, note.body) for note in claimed.notes}
    await store.settle("w1", time.monotonic_ns(), [Succeed(id, claimed.token)])
    assert (await waits.signal(id, "late")).text == f"job {id_text(id)} is succeeded, so nothing waits for it"
    entries = [(entry.kind, entry.actor, entry.job) for entry in await operator.audit()]
    assert entries == [("job.signal", "ada", id_text(id))] * 2


async def test_a_signal_of_a_program_is_not_logged(waits: Waits, store: Store, operator: Operator) -> None:
    id = await suspend(store, "wait", "paid", event="paid")
    await waits.signal(id, "paid", log=False)
    assert await operator.audit() == []


async def test_events_of_our_own_and_jobs_that_are_not_there_are_refused(waits: Waits, store: Store) -> None:
    id = await asks(store)
    with pytest.raises(InvalidStep, match="approve and reject"):
        await waits.signal(id, "approval:approval", {"approved": True})
    with pytest.raises(JobNotFound):
        await waits.signal("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", "paid")


async def test_a_job_is_meant_by_its_key(waits: Waits, store: Store) -> None:
    id = await suspend(store, "wait", "paid", event="paid", unique=Unique("order:7"))
    await put(store, job(unique=Unique("order:70")))
    assert (await waits.signal("order:7", "paid")).id == id_text(id)
    assert await waits.job("order:7", task="send") == id
    with pytest.raises(JobNotFound, match=r"no job of pay has the id or the unique key 'order:7'"):
        await waits.job("order:7", task="pay")
    with pytest.raises(JobNotFound):
        await waits.job("order:*")


async def test_a_key_may_look_like_an_id(waits: Waits, store: Store) -> None:
    order = "7d444840-9dc0-41d5-8f3c-0c3a5f0a5b1e"
    (id,) = await put(store, job(unique=Unique(order)))
    assert [await waits.job(order), await waits.typed(order), await waits.job(id_text(id))] == [id, id, id]
    assert (await waits.signal(order, "paid")).id == id_text(id)
    with pytest.raises(JobNotFound, match="no job has the id or the unique key"):
        await waits.signal(order.replace("7", "8"), "paid")


async def test_a_job_that_keeps_too_many_events_refuses_the_next(waits: Waits, store: Store) -> None:
    (id,) = await put(store, job())
    await store.signal([Signal(id, f"e{n}", b"1") for n in range(MAX_EVENTS)])
    with pytest.raises(PayloadTooLarge, match=f"job {id_text(id)} keeps 1,000 events") as caught:
        await waits.signal(id, "paid")
    assert "only events that it waits for" in caught.value.fix


@pytest.mark.parametrize("which", [None, 7, ""])
async def test_what_names_no_job_is_refused(waits: Waits, which: Any) -> None:
    with pytest.raises(InvalidOption, match="names no job"):
        await waits.signal(which, "paid")


async def test_a_decision_has_a_name_and_a_person(waits: Waits, store: Store, operator: Operator) -> None:
    id = await asks(store)
    names: list[Any] = ["", "a\x00b", "\ud800", "x" * 201, 7]
    for name in names:
        with pytest.raises(InvalidStep, match="the name of an approval"):
            await waits.approve(id, name=name)
    people: list[Any] = ["", " ", "a\x00", "\ud800", 7, None]
    for person in people:
        with pytest.raises(InvalidOption, match="who decides"):
            await Waits(store, person).reject(id)
    assert [note.kind for note in (await view_of(store, id)).notes if note.kind == "event"] == []
    assert await operator.audit() == []


async def test_a_key_that_jobs_of_two_tasks_hold_needs_the_task(waits: Waits, store: Store) -> None:
    one, two = await put(store, job("send", unique=Unique("k")), job("bill", unique=Unique("k")))
    with pytest.raises(SeveralJobs, match="jobs of 2 tasks hold the key 'k': bill, send"):
        await waits.job("k")
    assert [await waits.job("k", task="send"), await waits.job("k", task="bill")] == [one, two]


async def test_the_live_holder_of_a_key_comes_before_those_that_have_ended(waits: Waits, store: Store) -> None:
    (old,) = await put(store, job(unique=Unique("k")))
    (claimed,) = await claim(store)
    await store.settle("w1", time.monotonic_ns(), [Succeed(old, claimed.token)])
    assert (await waits.signal("k", "paid")).answer == "finished"
    (new,) = await put(store, job(unique=Unique("k")))
    assert await waits.job("k") == new


async def test_people_may_type_the_end_of_an_id_and_programs_may_not(waits: Waits, store: Store) -> None:
    id = await asks(store)
    end = id_text(id)[-8:]
    assert await waits.typed(end) == id
    with pytest.raises(JobNotFound, match="unique key"):
        await waits.job(end)


@pytest.mark.parametrize(("verb", "kind"), [("approve", "job.approve"), ("reject", "job.reject")])
async def test_a_decision_reaches_the_job_and_the_audit_log(
    waits: Waits, store: Store, operator: Operator, verb: str, kind: str
) -> None:
    id = await asks(store)
    said = await getattr(waits, verb)(id_text(id), comment="looks fine")
    assert said.answer == "woken"
    (claimed,) = await claim(store)
    decided = next(note for note in claimed.notes if note.kind == "event")
    approved = verb == "approve"
    assert decided.name == "approval:approval"
    assert msgspec.json.decode(decided.body) == {"approved": approved, "by": "ada", "comment": "looks fine"}
    (entry,) = await operator.audit()
    assert (entry.kind, entry.actor, entry.job, entry.reason) == (kind, "ada", id_text(id), "looks fine")
    facts = {"name": "approval", "question": "Pay 90 USD?", "answer": "woken"}
    assert entry.data == facts


async def test_the_first_decision_stands(waits: Waits, store: Store, operator: Operator) -> None:
    id = await asks(store)
    await waits.reject(id)
    said = await Waits(store, "bob").approve(id)
    assert said.answer == "already"
    assert "was rejected by ada before, and that stays" in said.text
    assert len(await operator.audit()) == 1


async def test_a_decision_may_come_ahead_by_name(waits: Waits, store: Store) -> None:
    (id,) = await put(store, job())
    with pytest.raises(InvalidOption, match="asks for no approval now, it is ready") as raised:
        await waits.approve(id)
    assert "name the approval" in raised.value.fix
    assert (await waits.approve(id, name="approval")).answer == "kept"


async def test_one_of_several_approvals_is_named(waits: Waits, store: Store) -> None:
    (id,) = await put(store, job())
    (claimed,) = await claim(store)
    for place, name in enumerate(("legal", "money")):
        record = Record("approval", place, name, event=f"approval:{name}", question=f"{name}?")
        await store.save(id, claimed.token, record.note(name))
    events = ("approval:legal", "approval:money")
    await store.settle("w1", time.monotonic_ns(), [Suspend(id, claimed.token, None, events)])
    assert [one.question for one in (await waits.approvals(ALL)).approvals] == ["legal?", "money?"]
    with pytest.raises(InvalidOption, match="asks for 2 approvals: legal, money"):
        await waits.approve(id)
    assert (await waits.approve(id, name="money")).answer == "woken"
    assert (await waits.approve(id)).event == "approval:legal"


async def test_jobs_that_wait_for_people_are_listed_with_the_nearest_end_first(waits: Waits, store: Store) -> None:
    first = await asks(store, "one?")
    await suspend(store, "wait", "paid", event="paid")
    await suspend(store, "sleep", "nap", event="sleep:nap", delay_ms=HOUR_MS)
    await put(store, job(delay_ms=HOUR_MS))
    second = await asks(store, "two?", delay_ms=HOUR_MS, task="bill")
    page = await waits.approvals(ALL)
    assert [(one.id, one.question) for one in page.approvals] == [(id_text(second), "two?"), (id_text(first), "one?")]
    assert page.approvals[0].until is not None
    assert (
        abs(instant_ms(page.approvals[0].until) - (await view_of(store, second)).due_at_ms) < 60_000
    )  # by another clock
    assert (page.approvals[1].until, page.complete) == (None, True)
    narrowed = await waits.approvals(parse_query("task:bill"))
    assert [one.id for one in narrowed.approvals] == [id_text(second)]
    await waits.approve(first)
    assert [one.id for one in (await waits.approvals(ALL)).approvals] == [id_text(second)]


async def test_a_page_of_approvals_says_where_it_ended(
    waits: Waits, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpet.ops.waits.PAGE", 2)
    ids = [await asks(store) for _ in range(5)]
    found, query = [], replace(ALL, limit=2)
    while True:
        page = await waits.approvals(query)
        found += [one.id for one in page.approvals]
        if page.complete:
            break
        query = replace(query, cursor=page.cursor)
    assert found == list(map(id_text, ids))
    monkeypatch.setattr("limpet.ops.waits.LOOKED_AT", 2)
    page = await waits.approvals(ALL)
    assert (len(page.approvals), page.complete) == (2, False)


# -- explaining


async def explained(operator: Operator, id: bytes) -> tuple[str, str, bool]:
    reason = (await operator.explain(id)).reasons[0]
    return reason.code, reason.text, reason.until is not None


async def test_a_suspended_job_says_what_it_waits_for_and_until_when(operator: Operator, store: Store) -> None:
    nap = await suspend(store, "sleep", "nap", event="sleep:nap", delay_ms=HOUR_MS)
    code, text, until = await explained(operator, nap)
    assert (code, until) == ("sleeping", True)
    assert re.match(r"it sleeps \(nap\) and continues in (59m|1h)", text)
    event = await suspend(store, "wait", "paid", event="paid")
    assert await explained(operator, event) == ("event", "it waits for the event 'paid'", False)
    timed = await suspend(store, "wait", "paid", event="paid", delay_ms=HOUR_MS)
    code, text, until = await explained(operator, timed)
    assert re.match(r"it waits for the event 'paid'; its time is over in (59m|1h)", text)
    person = await asks(store)
    code, text, until = await explained(operator, person)
    assert (code, text, until) == ("approval", "it waits for a person to approve or reject: Pay 90 USD?", False)


async def test_a_job_that_waits_for_several_things_says_each_with_its_own_end(operator: Operator, store: Store) -> None:
    (id,) = await put(store, job())
    (claimed,) = await claim(store)
    until_ms = claimed.claimed_at_ms + HOUR_MS
    for record in (Record("sleep", 0, "nap", event="sleep:nap", until_ms=until_ms), Record("wait", 0, "b", event="b")):
        await store.save(id, claimed.token, record.note(record.beside))
    await store.settle("w1", time.monotonic_ns(), [Suspend(id, claimed.token, HOUR_MS, ("b", "sleep:nap"))])
    reasons = (await operator.explain(id)).reasons[:2]
    assert {reason.code: reason.until is not None for reason in reasons} == {"sleeping": True, "event": False}
    await operator.retry([id_text(id)])
    (claimed,) = await claim(store)
    assert [note.name for note in claimed.notes if note.kind == "event"] == ["sleep:nap"]


async def test_a_suspended_job_that_a_person_put_off_is_scheduled(operator: Operator, store: Store) -> None:
    id = await suspend(store, "wait", "paid", event="paid")
    await operator.retry([id_text(id)], delay_ms=HOUR_MS)
    assert (await explained(operator, id))[0] == "scheduled"


# -- running again


async def test_starting_a_sleeping_job_now_ends_its_sleep(operator: Operator, store: Store) -> None:
    nap = await suspend(store, "sleep", "nap", event="sleep:nap", delay_ms=HOUR_MS)
    (plain,) = await put(store, job(delay_ms=HOUR_MS))
    report = await operator.retry([id_text(nap), id_text(plain)])
    assert (report.done, report.answers) == (2, {"retried": 2})
    by_id = {claimed.id: claimed.notes for claimed in await claim(store)}
    assert [note.name for note in by_id[nap] if note.kind == "event"] == ["sleep:nap"]
    assert by_id[plain] == ()


async def died_with_steps(store: Store, *names: str) -> bytes:
    (id,) = await put(store, job())
    claimed = next(each for each in await claim(store) if each.id == id)
    for place, name in enumerate(names, 1):
        await store.save(id, claimed.token, Record("step", place, value=msgspec.Raw(b"1")).note(name))
    failure = Failure("permanent", "limpet.StepsChanged", "changed", cause="c")
    await store.settle("w1", time.monotonic_ns(), [Bury(id, claimed.token, failure)])
    return id


async def steps_left(store: Store, id: bytes) -> list[str]:
    return [step.name for step in steps_of((await view_of(store, id)).notes)]


async def test_steps_are_forgotten_by_name_or_all(operator: Operator, store: Store) -> None:
    id = await died_with_steps(store, "plan", "pay", "mail")
    report = await operator.retry([id_text(id)], forget=["pay"], reason="new code")
    assert report.done == 1
    assert await steps_left(store, id) == ["plan", "mail"]
    entry = (await operator.audit())[-1]
    assert entry.data["forget"] == ["pay"]
    other = await died_with_steps(store, "plan", "pay")
    await operator.retry([id_text(other)], forget=["*"])
    assert await steps_left(store, other) == []


async def test_a_step_that_is_not_recorded_cannot_be_forgotten(operator: Operator, store: Store) -> None:
    id = await died_with_steps(store, "plan", "pay")
    with pytest.raises(InvalidOption, match="no step 'pya' is recorded") as raised:
        await operator.retry([id_text(id)], forget=["pya"])
    assert "pay" in raised.value.fix
    assert (await view_of(store, id)).state is State.dead


async def test_steps_are_shown_in_the_order_of_their_places() -> None:
    notes = [
        Record("step", 2, value=msgspec.Raw(b'{"id":1}')).note("b"),
        Record("approval", 3, event="approval:go", question="Go?", until_ms=0).note("go"),
        Record("step", 1, value=msgspec.Raw(b"null")).note("z"),
        Note("log", "00001.00001", b'"a line"'),
    ]
    shown = [(step.name, step.kind, step.value, step.question) for step in steps_of(notes)]
    assert shown == [("z", "step", None, None), ("b", "step", {"id": 1}, None), ("go", "approval", None, "Go?")]
