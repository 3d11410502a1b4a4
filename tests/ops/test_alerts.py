"""Looks for alerts on every engine: broken off at any call, or two at once, each firing and recovery is told once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.access.refusal import OutOfScope
from limpet.core.alerts.delivery import QUEUE, Delivery
from limpet.core.alerts.rule import DEFAULTS, AlertRules, WebhookRef
from limpet.core.alerts.settings import AlertsTable
from limpet.core.errors import InvalidOption, StoreUnreachable
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.ops import Operator
from limpet.ops.alert_look import AlertLook
from limpet.ops.alerts import Alerts, publish_rules
from limpet.ops.names import UnknownName
from limpet.ops.scope import ScopedStore
from limpet.stores.base import Store
from limpet_contract.bench import Bench
from limpet_contract.crash import MODES, Mode, Unreliable
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.between import Between

RULES = AlertRules((DEFAULTS["dead_letters"],), (WebhookRef("pager"),), every_ms=1_000)
LATER = 61_000  # a lease of the process that looks, and the time after which an alert resolves


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Bench]:
    """On one engine, for what engines have no part in."""
    harness = HARNESSES["sqlite-file"](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


def look_of(bench: Bench, name: str, store: Store | None = None) -> AlertLook:
    return AlertLook(store or bench.store, name, clock=lambda: bench.clock.now_ms)


def alerts_of(bench: Bench, store: Store | None = None) -> Alerts:
    return Alerts(store or bench.store, "ada", lambda: bench.clock.now_ms)


async def dead_job(bench: Bench, queue: str) -> bytes:
    id = await bench.add(queue=queue)
    (held,) = await bench.hand(queues=(queue,)).claim(1)
    await bench.hand(queues=(queue,)).bury(held)
    return id


async def told(bench: Bench, subject: str = "mail") -> list[tuple[str, State]]:
    """What there are jobs to tell about this subject, and how they stand."""
    jobs = [job for job in await bench.everything() if job.lane.queue == QUEUE]
    found = [(msgspec.json.decode(job.args, type=Delivery).notice, job.state) for job in jobs]
    return sorted((notice.state, state) for notice, state in found if notice.subject == subject)


FIRED = [("firing", State.ready)]
BOTH = [("firing", State.ready), ("resolved", State.blocked)]


async def test_an_alert_fires_and_resolves_and_tells_both_once(bench: Bench) -> None:
    await bench.store.put_control(RULES.control())
    look = look_of(bench, "a")
    id = await dead_job(bench, "mail")
    for _ in range(3):
        assert await look.look()
        bench.clock.advance(1_000)
    (alert,) = await alerts_of(bench).list()
    assert (alert.alert, alert.state, alert.queue, alert.told) == ("dead_letters:mail", "firing", "mail", True)
    assert await told(bench) == FIRED
    await bench.store.discard([id])
    await look.look()
    assert (await alerts_of(bench).list())[0].state == "firing"
    bench.clock.advance(60_000)
    await look.look()
    assert [alert.state for alert in await alerts_of(bench).list()] == ["resolved"]
    assert await alerts_of(bench).list(resolved=False) == ()
    assert await told(bench) == BOTH
    events = [(each.kind, each.key) for each in await Operator(bench.store, "ada").events()]
    assert events == [("alert.firing", "dead_letters:mail"), ("alert.resolved", "dead_letters:mail")]


@pytest.mark.parametrize("mode", MODES)
async def test_looks_that_are_broken_off_anywhere_tell_a_firing_and_a_recovery_once(bench: Bench, mode: Mode) -> None:
    await bench.store.put_control(RULES.control())
    fail_at, lived = 0, 0
    while lived < 2:
        fail_at, lived = fail_at + 1, 0
        queue = f"q{fail_at}"
        id = await dead_job(bench, queue)
        lived += await broken_off(bench, fail_at, mode)
        assert await told(bench, queue) == FIRED, fail_at
        await bench.store.discard([id])
        bench.clock.advance(1_000)
        await look_of(bench, "b").look()
        bench.clock.advance(LATER)
        lived += await broken_off(bench, fail_at, mode)
        assert await told(bench, queue) == BOTH, fail_at


async def broken_off(bench: Bench, fail_at: int, mode: Mode) -> bool:
    """A look whose process dies at that call, and that of another process; whether the first lived to its end."""
    store = cast(Store, Unreliable(bench.store, fail_at, mode, "dies"))
    try:
        await look_of(bench, f"a{fail_at}", store).look()
    except StoreUnreachable:
        bench.clock.advance(4_000)
        assert await look_of(bench, "b").look()
        bench.clock.advance(4_000)
        return False
    bench.clock.advance(4_000)
    return True


async def test_of_two_that_look_at_once_one_decides(bench: Bench) -> None:
    await bench.store.put_control(RULES.control())
    await dead_job(bench, "mail")
    slow = look_of(bench, "a", cast(Store, Between(bench.store, {"put_control"}, look_of(bench, "b").look)))
    assert not await slow.look()
    assert await told(bench) == FIRED
    assert not await look_of(bench, "a").look(), "b leads"
    bench.clock.advance(4_000)
    assert await look_of(bench, "a").look(), "b was taken for dead"
    assert await told(bench) == FIRED


async def test_a_process_that_wakes_up_after_another_has_told_tells_nothing(bench: Bench) -> None:
    """It has written the book, and sleeps before it stores the jobs; meanwhile these are stored, run and pruned."""
    await bench.store.put_control(RULES.control())
    await dead_job(bench, "mail")

    async def meanwhile() -> None:
        bench.clock.advance(10_000)
        assert await look_of(bench, "b").look()
        hand = bench.hand(queues=(QUEUE,), capabilities=("webhook:pager",))
        for held in await hand.claim(5):
            await hand.succeed(held)
        bench.clock.advance(1_000)
        while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
            pass
        assert await told(bench) == []

    await look_of(bench, "a", cast(Store, Between(bench.store, {"relay"}, meanwhile))).look()
    assert await told(bench) == []


async def test_while_everything_is_drained_alerts_wait_and_are_told_after(bench: Bench) -> None:
    await bench.store.put_control(RULES.control())
    operator = Operator(bench.store, "ada", clock=lambda: bench.clock.now_ms)
    await dead_job(bench, "mail")
    await operator.drain("all")
    look = look_of(bench, "a")
    await look.look()
    bench.clock.advance(1_000)
    await look.look()
    assert await told(bench) == []
    await operator.resume("all")
    await look.look()
    assert [state for state, _ in await told(bench)] == ["firing"]
    await look.look()
    assert [state for state, _ in await told(bench)] == ["firing"]


async def test_what_a_person_has_paused_may_wait(bench: Bench) -> None:
    soon = replace(DEFAULTS["oldest_ready"], at_least=1.0)
    await bench.store.put_control(AlertRules((soon,), every_ms=1_000).control())
    operator = Operator(bench.store, "ada", clock=lambda: bench.clock.now_ms)
    await bench.add(queue="mail")
    bench.clock.advance(5_000)
    await operator.pause("all")
    look = look_of(bench, "a")
    await look.look()
    assert await alerts_of(bench).list() == ()
    await operator.resume("all")
    await look.look()
    assert [alert.alert for alert in await alerts_of(bench).list()] == ["oldest_ready:mail"]


async def test_a_silence_is_kept_while_others_write_the_book_and_ends(bench: Bench) -> None:
    await bench.store.put_control(RULES.control())
    look, people = look_of(bench, "a"), alerts_of(bench)
    busy = alerts_of(bench, cast(Store, Between(bench.store, {"put_control"}, look.look)))
    made = await busy.silence("dead_letters:mail", "10m", reason="we know")
    assert (made.pattern, made.by, made.reason) == ("dead_letters:mail", "ada", "we know")
    await dead_job(bench, "mail")
    await dead_job(bench, "pdf")
    await look.look()
    assert (await told(bench), await told(bench, "pdf")) == ([], FIRED)
    mail, pdf = await people.list()
    assert (mail.silenced_until, pdf.silenced_until) == (made.until, None)
    await people.silence("dead_letters:mail", 0)
    await look.look()
    assert await told(bench) == FIRED
    assert await people.silences() == ()
    log = [(line.kind, line.reason, line.data["pattern"]) for line in await Operator(bench.store, "ada").audit()]
    assert log == [
        ("alert.silence", "we know", "dead_letters:mail"),
        ("alert.unsilence", None, "dead_letters:mail"),
    ]


async def test_a_silence_names_a_rule_that_there_is(here: Bench) -> None:
    people = alerts_of(here)
    with pytest.raises(InvalidOption, match="did you mean 'dead_letters'"):
        await people.silence("dead_leters")
    with pytest.raises(UnknownName, match="there is no silence of 'budget'"):
        await people.silence("budget", 0)
    await people.silence("*:mail")
    for number in range(99):
        await people.silence(f"budget:{number}")
    with pytest.raises(InvalidOption, match="there are 100 silences"):
        await people.silence("store")


async def test_rules_are_published_by_the_process_that_starts_last(here: Bench) -> None:
    assert len(await alerts_of(here).rules()) == len(DEFAULTS)
    assert await publish_rules(here.store, None) is None
    await publish_rules(here.store, AlertsTable(rules={"store": False}))
    await publish_rules(here.store, None)
    rules = await alerts_of(here).rules()
    assert len(rules) == len(DEFAULTS) - 1
    assert rules[0].to_dict() == {
        "rule": "dead_letters",
        "subject": "queue",
        "measure": "jobs",
        "at_least": 1,
        "each": {},
        "ignore": [],
        "for_s": 0.0,
        "clear_after_s": 60.0,
        "text": "from 1 on",
        "webhooks": [],
    }


async def test_a_scope_sees_the_alerts_of_its_queues_and_changes_none(here: Bench) -> None:
    bulk = replace(DEFAULTS["oldest_ready"], each={"mail": 1.0, "pdf": 2.0}, ignore=("secret",))
    await here.store.put_control(replace(RULES, rules=(*RULES.rules, bulk)).control())
    await dead_job(here, "mail")
    await dead_job(here, "pdf")
    await look_of(here, "a").look()
    await alerts_of(here).silence("budget")
    scoped = alerts_of(here, cast(Store, ScopedStore(here.store, frozenset({"mail"}))))
    assert {alert.subject for alert in await scoped.list()} == {"mail"}
    oldest = next(rule for rule in await scoped.rules() if rule.rule == "oldest_ready")
    assert (oldest.each, oldest.ignore, oldest.webhooks) == ({"mail": 0.001}, (), ())
    assert await scoped.silences() == ()
    with pytest.raises(OutOfScope):
        await scoped.silence("dead_letters:mail")
    with pytest.raises(UnknownName, match="there are no webhooks"):
        await scoped.test()


async def test_what_is_expensive_is_looked_at_once_a_minute(here: Bench) -> None:
    await here.store.put_control(AlertRules().control())
    asked: list[str] = []

    class Noted:
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return getattr(here.store, name)

    look = look_of(here, "a", cast(Store, Noted()))
    looks = []
    for _ in range(8):
        asked.clear()
        await look.look()
        looks.append("check" in asked)
        here.clock.advance(10_000)
    assert looks == [True, False, False, False, False, False, True, False]
