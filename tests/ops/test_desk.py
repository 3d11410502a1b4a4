"""The desk of the dead letters on every engine: the status of a cause, and what people have said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from limpet.core.endings.review import KIND
from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control
from limpet.core.records.record import moment
from limpet.ops import CauseKey, Operator
from limpet.ops import causes as causes_module
from limpet.ops.causes import SeveralCauses
from limpet.ops.desk import CauseChanged
from limpet.ops.names import UnknownName
from limpet.records import CauseRecord
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED

HOUR_MS = 3_600_000


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


@pytest.fixture
def operator(bench: Bench) -> Operator:
    return operator_of(bench, "ada")


def operator_of(bench: Bench, actor: str) -> Operator:
    return Operator(bench.store, actor, clock=lambda: bench.clock.now_ms)


async def die(bench: Bench, cause: str = "dns", *, queue: str = "mail", task: str = "send") -> bytes:
    """Let a job die of a cause, one second later than anything before."""
    bench.clock.advance(1_000)
    id = await bench.add(queue=queue, task=task)
    hand = bench.hand("undertaker", queues=(queue,), tasks=(task,))
    await hand.bury(await hand.take(), cause=cause, message=f"{cause}!")
    return id


async def status(operator: Operator, which: str = "dns") -> str:
    return (await operator.desk.cause(which)).status


async def test_a_cause_is_open_until_a_person_says_otherwise(bench: Bench, operator: Operator) -> None:
    await die(bench)
    first_ms = bench.clock.now_ms
    await die(bench)
    (found,) = await operator.causes()
    assert (found.status, found.status_by, found.version, found.count, found.assignee) == ("open", None, 0, 2, None)
    assert (found.first_at, found.last_at) == (moment(first_ms), moment(first_ms + 1_000))
    said = await operator.desk.acknowledge("dns", reason="known")
    assert (said.status, said.status_by, said.status_at) == ("acknowledged", "ada", moment(bench.clock.now_ms))
    assert await operator.causes() == [said]
    await die(bench)
    assert await status(operator) == "acknowledged", "a person takes care of it"
    assert (await operator.desk.reopen("dns")).status == "open"


async def test_a_resolved_cause_regresses_with_the_next_death(bench: Bench, operator: Operator) -> None:
    id = await die(bench)
    assert (await operator.desk.resolve("dns", reason="fixed in 1.4")).status == "resolved"
    assert await bench.retry(id) == ["retried"]
    assert await operator.causes() == [], "none of its jobs is dead"
    (idle,) = await operator.desk.causes(status=["resolved"])
    assert (idle.count, idle.sample, idle.error, idle.message) == (0, None, "builtins.RuntimeError", "dns!")
    bench.clock.advance(1_000)
    hand = bench.hand("undertaker")
    await hand.bury(await hand.take(), cause="dns")
    (found,) = await operator.causes()
    assert (found.status, found.first_at < found.last_at) == ("regressed", True)
    assert [one.cause for one in await operator.desk.causes(status=["open", "regressed"])] == ["dns"]
    assert await operator.desk.causes(status=["resolved"]) == []
    assert (await operator.desk.assign("dns", "bob")).status == "regressed", "who has it says nothing of the deaths"
    assert (await operator.desk.resolve("dns")).status == "resolved"


async def test_a_snoozed_cause_is_open_again_when_its_time_is_over(bench: Bench, operator: Operator) -> None:
    await die(bench)
    until_ms = bench.clock.now_ms + 2 * HOUR_MS
    snoozed = await operator.desk.snooze("dns", "2h")
    assert (snoozed.status, snoozed.until) == ("snoozed", moment(until_ms))
    await die(bench)
    assert await status(operator) == "snoozed"
    bench.clock.advance(until_ms - bench.clock.now_ms - 1)
    assert await status(operator) == "snoozed"
    bench.clock.advance(1)
    (found,) = await operator.causes()
    assert (found.status, found.until) == ("open", None)
    again = await operator.desk.snooze("dns", moment(bench.clock.now_ms) + timedelta(minutes=5))
    assert again.until == moment(bench.clock.now_ms + 300_000)
    for until in (moment(bench.clock.now_ms), 0):
        with pytest.raises(InvalidOption, match="has passed"):
            await operator.desk.snooze("dns", until)


async def test_what_two_people_say_at_once_is_all_kept(bench: Bench, operator: Operator) -> None:
    await die(bench)
    ada, bob = operator.desk, operator_of(bench, "bob").desk
    noted = (ada.note("dns", f"look at {n}") for n in range(4))
    await asyncio.gather(*noted, bob.assign("dns", "bob"), bob.acknowledge("dns"))
    found = await ada.cause("dns")
    assert (found.assignee, found.status, found.version) == ("bob", "acknowledged", 6)
    assert str(found.note).startswith("look at ")


async def test_a_decision_on_what_has_changed_meanwhile_is_refused(bench: Bench, operator: Operator) -> None:
    await die(bench)
    seen = await operator.desk.cause("dns")
    await operator_of(bench, "bob").desk.resolve("dns")
    with pytest.raises(CauseChanged, match="version 1"):
        await operator.desk.snooze("dns", "1h", version=seen.version)
    assert await status(operator) == "resolved"
    assert (await operator.desk.reopen("dns", version=1)).version == 2


async def test_an_escalated_cause_waits_again_and_the_event_log_says_so(bench: Bench, operator: Operator) -> None:
    await die(bench)
    await operator.desk.snooze("dns", "2h")
    said = await operator.desk.escalate("dns", "network team", reason="since noon")
    assert (said.status, said.assignee, said.escalated_by) == ("open", "network team", "ada")
    assert said.escalated_at == moment(bench.clock.now_ms)
    (event,) = await operator.events()
    assert event.kind == "cause.escalated"
    assert event.text == (
        "ada escalated builtins.RuntimeError of send in mail (1 dead job) to network team: since noon"
    )
    taken = await operator_of(bench, "nat").desk.acknowledge("dns")
    assert (taken.status, taken.assignee, taken.escalated_at) == ("acknowledged", "network team", None)


async def test_each_thing_said_is_in_the_audit_log_and_a_dry_run_says_nothing(bench: Bench, operator: Operator) -> None:
    await die(bench)
    planned = await operator.desk.assign("dns", "bob", reason="his", dry_run=True)
    assert (planned.assignee, planned.version) == ("bob", 0)
    assert (await operator.desk.cause("dns")).assignee is None
    assert await operator.audit() == []
    await operator.desk.assign("dns", "bob", reason="his")
    await operator.desk.note("dns", "see ticket 7")
    assigned, noted = await operator.audit()
    assert (assigned.kind, assigned.actor, assigned.reason) == ("cause.assign", "ada", "his")
    assert assigned.data == {
        "cause": "dns",
        "queue": "mail",
        "task": "send",
        "error": "builtins.RuntimeError",
        "jobs": 1,
        "status": "open",
        "assignee": "bob",
        "was": {"assignee": None},
    }
    assert (noted.kind, noted.data["note"], noted.data["was"]) == ("cause.note", "see ticket 7", {"note": None})
    assert (await operator.desk.assign("dns", None)).assignee is None
    assert (await operator.desk.note("dns", "")).note is None


async def test_one_fingerprint_may_be_of_several_tasks(bench: Bench, operator: Operator) -> None:
    await die(bench, "timeout")
    await die(bench, "timeout", queue="pdf", task="make")
    with pytest.raises(SeveralCauses, match=r"timeout of (make in pdf|send in mail); timeout of"):
        await operator.desk.resolve("timeout")
    await operator.desk.resolve(CauseKey("timeout", queue="pdf"))
    await operator.desk.acknowledge(CauseKey("time", task="send"))
    assert {one.task: one.status for one in await operator.causes()} == {"make": "resolved", "send": "acknowledged"}
    (mail,) = await operator.causes("mail")
    assert mail.key == ("timeout", "mail", "send")
    for which in ("tim", "dns", CauseKey("timeout", queue="other")):
        with pytest.raises(UnknownName, match="there is no cause"):
            await operator.desk.cause(which)


async def test_causes_are_picked_by_status_and_assignee(bench: Bench, operator: Operator) -> None:
    for cause in ("dns", "dns", "tls", "oom"):
        await die(bench, cause)
    await operator.desk.assign("tls", "bob")
    await operator.desk.acknowledge("oom")

    async def causes(*status: str, assignee: str | None = None) -> list[str]:
        picked = await operator.desk.causes(status=status or None, assignee=assignee)  # type: ignore[arg-type]
        return [one.cause for one in picked]

    assert (await causes())[0] == "dns"
    assert await causes("open") == ["dns", "tls"]
    assert await causes("acknowledged") == ["oom"]
    assert await causes(assignee="bob") == ["tls"]
    assert [one.cause for one in await operator.desk.causes(limit=1)] == ["dns"]
    with pytest.raises(InvalidOption, match="did you mean 'resolved'"):
        await causes("resolvd")


async def test_deaths_are_counted_by_the_hour(
    bench: Bench, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cause in ("dns", "dns", "tls"):
        await die(bench, cause)
    bench.clock.advance(3 * HOUR_MS)
    await die(bench)

    def by_hour(found: CauseRecord) -> dict[int, int]:
        assert found.hours is not None
        assert len(found.hours) == 24
        return {ago: count for ago, count in enumerate(reversed(found.hours)) if count}

    dns, tls = await operator.desk.causes(hours=True)
    assert (by_hour(dns), by_hour(tls)) == ({0: 1, 3: 2}, {3: 1})
    assert dns.hours_from == moment(bench.clock.now_ms - 24 * HOUR_MS)
    assert dns.per_hour == 1.0
    assert by_hour(await operator.desk.cause("dns")) == {0: 1, 3: 2}
    assert (await operator.causes())[0].hours is None
    bench.clock.advance(22 * HOUR_MS)
    assert by_hour(await operator.desk.cause("dns")) == {22: 1}, "a day is looked at"
    monkeypatch.setattr(causes_module, "PAGE", 1)
    monkeypatch.setattr(causes_module, "LOOKED_AT", 1)
    await die(bench)
    few = await operator.desk.cause("dns")
    assert (by_hour(few), few.hours_from) == ({0: 1}, moment(bench.clock.now_ms)), "and it says from when on"


async def test_what_cannot_be_kept_is_refused_by_name(bench: Bench, operator: Operator) -> None:
    await die(bench)
    for name in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(InvalidOption, match=r"assignee=.* names no person"):
            await operator.desk.assign("dns", name)
    with pytest.raises(InvalidOption, match="2,001 characters"):
        await operator.desk.note("dns", "x" * 2_001)
    with pytest.raises(InvalidOption, match="cause='"):
        await operator.desk.resolve("d\0")
    await bench.store.put_control(Control(KIND, "later", b'{"of another release":1}'))
    assert await status(operator) == "open"
