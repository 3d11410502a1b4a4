"""What was decided about dead jobs, from the audit log of every engine: by cause, with what became of the jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import Entry
from limpet.ops import Operator
from limpet.ops import decisions as decisions_module
from limpet.ops import events as events_module
from limpet.records import CauseDecisions, DecisionLog
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED

MINUTE_MS = 60_000


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


async def die(bench: Bench, cause: str = "dns", queue: str = "mail") -> str:
    """Let a job die of a cause, one second later than anything before."""
    bench.clock.advance(1_000)
    id = await bench.add(queue=queue)
    await bury(bench, cause, queue)
    return id_text(id)


async def bury(bench: Bench, cause: str, queue: str = "mail") -> None:
    hand = bench.hand("undertaker", queues=(queue,))
    await hand.bury(await hand.take(), cause=cause, message=f"{cause}!")


async def succeed(bench: Bench, queue: str = "mail") -> None:
    hand = bench.hand("worker", queues=(queue,))
    await hand.succeed(await hand.take())


def told(cause: CauseDecisions) -> list[tuple[str, str, str | None, int]]:
    return [(one.action, one.actor, one.reason, one.jobs) for one in cause.decisions]


async def test_decisions_are_told_by_cause_with_what_became_of_the_jobs(bench: Bench, operator: Operator) -> None:
    for _ in range(3):
        await die(bench)
    poor = await die(bench, "address")
    await operator.desk.assign("dns", "bob", reason="his network")
    bench.clock.advance(MINUTE_MS)
    await operator.retry("cause:dns", reason="it is back")
    await succeed(bench)
    await bury(bench, "dns")
    bench.clock.advance(MINUTE_MS)
    await operator_of(bench, "eve").discard([poor], reason="no such person")
    await operator.cancel("state:ready", reason="not needed any more")
    log = await operator.desk.decisions()
    address, dns = log.causes
    assert (address.cause, address.queue, address.error) == ("address", "mail", "builtins.RuntimeError")
    assert (address.message, address.status, address.count) == (None, None, 0), "nothing is left of it"
    assert told(address) == [("discard", "eve", "no such person", 1)]
    assert address.decisions[0].job == poor
    assert (dns.message, dns.status, dns.count) == ("dns!", "open", 1)
    assert told(dns) == [("assign", "ada", "his network", 3), ("retry", "ada", "it is back", 3)]
    said, retried = dns.decisions
    assert (said.said, said.became) == ({"assignee": "bob"}, {})
    assert retried.became == {"succeeded": 1, "died_again": 1, "cancelled": 1}
    assert (retried.job, retried.query) == (None, "cause:dns")
    assert log.cursor is None


async def test_a_job_that_is_decided_about_again_died_again(bench: Bench, operator: Operator) -> None:
    id = await die(bench)
    await operator.retry([id], patch={"to": "b"}, reason="first")
    await bury(bench, "tls")
    bench.clock.advance(MINUTE_MS)
    await operator.retry([id], reason="second")
    await succeed(bench)
    tls, dns = (await operator.desk.decisions()).causes
    (second,), (first,) = tls.decisions, dns.decisions
    assert (first.became, first.edited, first.job) == ({"died_again": 1}, 1, id)
    assert (second.became, second.edited) == ({"succeeded": 1}, 0)


async def test_jobs_that_are_decided_about_near_each_other_are_one_decision(bench: Bench, operator: Operator) -> None:
    ids = [await die(bench) for _ in range(4)]
    begun_ms = bench.clock.now_ms
    for id in ids[:2]:
        await operator.discard([id], reason="old")
        bench.clock.advance(MINUTE_MS)
    await operator.discard(ids[2:3], reason="other")
    bench.clock.advance(decisions_module.NEAR_MS + MINUTE_MS)
    await operator.discard(ids[3:], reason="old")
    (dns,) = (await operator.desk.decisions()).causes
    assert told(dns) == [("discard", "ada", "old", 2), ("discard", "ada", "other", 1), ("discard", "ada", "old", 1)]
    span = dns.decisions[0]
    assert (span.at.timestamp(), span.until.timestamp()) == (begun_ms / 1000, (begun_ms + MINUTE_MS) / 1000)


async def test_an_operation_is_one_decision_however_long_it_takes(
    bench: Bench, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions_module, "NEAR_MS", -1)  # no two lines are near each other
    for _ in range(3):
        await die(bench)
    started = await operator.operations.start("retry", "state:dead cause:dns", reason="it is back")
    await operator.operations.run(started.id)
    (dns,) = (await operator.desk.decisions()).causes
    assert told(dns) == [("retry", "ada", "it is back", 3)]
    assert (dns.decisions[0].operation, dns.decisions[0].became) == (started.id, {"waiting": 3})


async def test_a_queue_and_a_time_narrow_it(bench: Bench, operator: Operator) -> None:
    await die(bench)
    await die(bench, queue="paper")
    await operator.retry("queue:mail state:dead", reason="early")
    bench.clock.advance(MINUTE_MS)
    late_ms = bench.clock.now_ms
    await operator.retry("queue:paper state:dead", reason="late")
    assert [one.queue for one in (await operator.desk.decisions()).causes] == ["paper", "mail"]
    (mail,) = (await operator.desk.decisions("mail")).causes
    assert told(mail) == [("retry", "ada", "early", 1)]
    (late,) = (await operator.desk.decisions(since_ms=late_ms)).causes
    assert late.queue == "paper"
    assert (await operator.desk.decisions("other")).causes == ()


async def test_a_long_log_is_read_in_parts_that_new_lines_do_not_move(
    bench: Bench, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_PAGE", 2)
    monkeypatch.setattr(decisions_module, "MOST_LINES", 4)
    ids = [await die(bench) for _ in range(5)]
    for number, id in enumerate(ids):
        await operator.retry([id], reason=f"r{number}")
        await operator.pause("queue:other", reason="a line of another kind", new=True)

    def reasons(log: DecisionLog) -> list[str | None]:
        return [one.reason for cause in log.causes for one in cause.decisions]

    parts = [await operator.desk.decisions()]
    while parts[-1].cursor is not None:
        await operator.pause("queue:other", reason="a new line")
        parts.append(await operator.desk.decisions(before=parts[-1].cursor))
    assert [reason for part in reversed(parts) for reason in reasons(part)] == [f"r{number}" for number in range(5)]
    assert len(parts) >= 3


async def test_of_many_retried_jobs_the_newest_are_looked_up(
    bench: Bench, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions_module, "MOST_JOBS", 2)
    ids = [await die(bench) for _ in range(3)]
    await operator.retry(ids[:1], reason="first")
    await operator.retry(ids[1:], reason="second")
    (dns,) = (await operator.desk.decisions()).causes
    assert [one.became for one in dns.decisions] == [{"not_looked_up": 1}, {"waiting": 2}]


async def test_lines_that_say_nothing_of_a_cause_are_passed_over(bench: Bench, operator: Operator) -> None:
    await bench.add(delay_ms=MINUTE_MS)
    await operator.retry("state:scheduled", reason="now")
    await bench.store.append([Entry("audit", bench.clock.now_ms, "job.retry", "eve", None, "", b"of another release")])
    assert (await operator.desk.decisions()).causes == ()
