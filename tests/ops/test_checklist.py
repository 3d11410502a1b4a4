"""The reviewer's checklist: each item that code, schedules, workers or settings do not keep is named, and no other."""

from __future__ import annotations

import time

import msgspec
import pytest
from msgspec.structs import replace

from limpet import Every
from limpet.core.alerts.book import Alert, Book, Notice
from limpet.core.alerts.delivery import delivery_job
from limpet.core.alerts.rule import DEFAULTS, AlertRules, WebhookRef
from limpet.core.endings.hook import Hook
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Finding
from limpet.core.settings import ServerTable
from limpet.core.tasks.declaration import Declaration
from limpet.ops import Operator, Schedules
from limpet.ops.doctor import doctor
from limpet.stores.base import Store
from tests.ops.making import kill

GOOD = Declaration("good", unique=True)
TOLD = AlertRules(webhooks=(WebhookRef("pager"),))
MINUTE = 60_000


@pytest.fixture
async def kept(store: Store) -> Store:
    """A store in which every item is kept."""
    await store.put_control(GOOD.control())
    await store.put_control(TOLD.control())
    await works(store)
    return store


async def works(store: Store, *tasks: str, grace_ms: int = 25_000, session: str = "w1") -> None:
    about = msgspec.json.encode({"grace_ms": grace_ms})
    await store.beat(Beat(session, 600_000, Serves(None, tasks or None), about))


async def warnings(store: Store, server: ServerTable | None = None) -> dict[str, Finding]:
    found = await doctor(store, now_ms=time.time_ns() // 1_000_000, server=server)
    return {each.code: each for each in found if each.level != "ok" and each.code not in ENGINE}


ENGINE = {"sync", "durability", "power_loss"}  # the store of these tests is not flushed


async def declare(store: Store, *tasks: Declaration) -> None:
    for task in tasks:
        await store.put_control(task.control())


async def test_the_defaults_keep_every_item(kept: Store) -> None:
    found = await doctor(kept, now_ms=time.time_ns() // 1_000_000, server=ServerTable())
    assert [each.code for each in found if each.level != "ok" and each.code not in ENGINE] == []
    assert "review" in {each.code for each in found}


async def test_raised_bounds_of_payloads_and_results(kept: Store) -> None:
    await declare(
        kept,
        Declaration("large", unique=True, max_payload_bytes=1_000_000),
        Declaration("wordy", unique=True, policy=Policy(max_result_bytes=1_000_000)),
    )
    (finding,) = (await warnings(kept)).values()
    assert (finding.code, finding.text.endswith("each read with every claim: large, wordy")) == ("review_payload", True)


async def test_a_single_loss_that_kills_a_job_that_would_be_retried(kept: Store) -> None:
    await declare(
        kept,
        Declaration("fragile", unique=True, policy=Policy(max_lost=1)),
        Declaration("once", unique=True, policy=Policy(max_lost=1, attempts=1)),
    )
    (finding,) = (await warnings(kept)).values()
    assert (finding.code, finding.text.endswith(": fragile")) == ("review_lost", True)
    notes = {each.code: each.text for each in await doctor(kept, now_ms=0)}
    assert notes["review_at_most_once"].endswith(": once")


async def test_runs_of_a_schedule_that_may_pile_up(kept: Store) -> None:
    schedules = Schedules(kept, "ada", handle=lambda answer, task: answer)
    await schedules.add(Every("1h", overlap="allow"), "good", name="piles")
    await schedules.add(Every("1h", overlap="queue_one"), "good", name="waits")
    found = await warnings(kept)
    assert found["review_overlap"].text.endswith("takes too long: piles")


async def test_a_grace_that_is_shorter_than_a_timeout_that_code_has_set(kept: Store) -> None:
    await declare(
        kept,
        Declaration("long", unique=True, policy=Policy(timeout_ms=MINUTE)),
        Declaration("short", unique=True, policy=Policy(timeout_ms=20_000)),
        Declaration("elsewhere", unique=True, queue="pdf", policy=Policy(timeout_ms=MINUTE)),
    )
    await works(kept, "good", "long", "short")
    found = await warnings(kept)
    assert found["review_grace"].text == (
        "tasks whose timeout is longer than the grace of their workers (25s), so that a deployment interrupts their "
        "longest jobs and they begin again: long"
    )
    await works(kept, "good", "long", "short", grace_ms=MINUTE)
    assert "review_grace" not in await warnings(kept)


async def test_dead_letters_that_no_rule_watches_or_no_one_hears_of(kept: Store) -> None:
    await kept.put_control(AlertRules((DEFAULTS["budget"],), TOLD.webhooks).control())
    assert (await warnings(kept))["review_alerts"].text == "no alert rule watches the dead letters"
    await kept.put_control(AlertRules(webhooks=(WebhookRef("pager", ("budget",)),)).control())
    assert (await warnings(kept))["review_alerts"].text.startswith("dead letters are told to no one")
    mails = Hook(Lane("limpet.hooks", "hook:mail"), states=(State.dead,), tasks=("mail",))
    await kept.put_control(mails.control())
    assert "review_alerts" in await warnings(kept)
    await kept.put_control(replace(mails, tasks=()).control())
    assert "review_alerts" not in await warnings(kept)


async def test_dead_jobs_that_go_before_a_person_has_seen_them(kept: Store) -> None:
    operator = Operator(kept, "ada")
    await operator.set_retention("mail", {"dead": "1d"})
    await operator.set_retention("pdf", {"dead": "90d", "succeeded": "1m"})
    assert (await warnings(kept))["review_dead_kept"].text.endswith("or not: mail (1d)")


async def test_a_server_that_other_machines_reach(kept: Store) -> None:
    assert (await warnings(kept, ServerTable(bind="0.0.0.0"))).keys() == {"public_bind"}
    assert await warnings(kept, ServerTable(bind="::1")) == {}


# -- alerts themselves


async def test_what_fires_and_that_no_process_looks(kept: Store) -> None:
    now_ms = time.time_ns() // 1_000_000
    firing = Alert("budget", "usd/day:x", "", now_ms, fired_ms=now_ms)
    kept_book = await kept.put_control(Book((firing,), looked_ms=now_ms - 5 * MINUTE).control())
    assert kept_book is not None
    found = await warnings(kept)
    assert found["alerts_firing"].text == "1 alert fires: budget:usd/day:x"
    assert found["alerts_idle"].text == "no process has looked for alerts for 5m"
    await kept.put_control(Book(looked_ms=now_ms).control())
    assert not {"alerts_firing", "alerts_idle"} & (await warnings(kept)).keys()


async def test_what_could_not_be_told_and_what_waits_for_a_process_with_the_address(kept: Store) -> None:
    notice = Notice("firing", "budget", "x", "text", 0, 0)
    await kept.enqueue([delivery_job(notice, "pager")])
    codes = [each.code for each in await doctor(kept, now_ms=time.time_ns() // 1_000_000)]
    assert "alerts_waiting" not in codes
    late = {each.code: each for each in await doctor(kept, now_ms=time.time_ns() // 1_000_000 + 2 * MINUTE)}
    assert "no process takes it" in late["alerts_waiting"].text
    assert "unknown_task" not in late
    refused = delivery_job(replace(notice, at_ms=5), "pager")
    await kill(kept, replace(refused, lane=Lane("limpet.alerts", "limpet.alert")))
    assert (await warnings(kept))["alerts_untold"].text.startswith("1 notice of an alert could not be told")
