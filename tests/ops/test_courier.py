"""Alerts reach a real receiver: signed, retried, in order, in bounded time; and so does an outage of the store."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from limpet.core.alerts.book import Book, Notice, Silence
from limpet.core.alerts.delivery import POLICY, QUEUE, SIGNATURE, TIMESTAMP, delivery_job, signature
from limpet.core.alerts.rule import DEFAULTS, AlertRules, WebhookRef
from limpet.core.alerts.settings import AlertsTable, WebhookTable
from limpet.core.alerts.webhook import Webhook
from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.ops import Operator
from limpet.ops.alert_away import AwayWatch
from limpet.ops.alert_runner import AlertRunner
from limpet.ops.alerts import Alerts
from limpet.ops.courier import Courier
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import job, kill
from tests.servers.receiver import Receiver, receiver

NOW = 1_700_000_000_000
FIRING = Notice("firing", "dead_letters", "mail", "3 dead jobs wait", NOW, NOW, 3, "mail")
RESOLVED = replace(FIRING, state="resolved", at_ms=NOW + 5)
PATIENCE_S = 60


@pytest.fixture(params=SHARED)
async def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.fixture
def pager() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def courier(store: Store, *webhooks: Webhook) -> Courier:
    return Courier(store, {webhook.name: webhook for webhook in webhooks}, "shop")


def webhook_of(pager: Receiver, **more: object) -> Webhook:
    return replace(Webhook("pager", pager.url, timeout_ms=30_000), **more)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine with its key, and the certificate alone."""
    both, trusted = folder / "both.pem", folder / "trusted.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=pager"]
    named = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(both), "-out", str(trusted)]
    subprocess.run([*words, *named], check=True, capture_output=True)
    both.write_text(both.read_text() + trusted.read_text())
    return both, trusted


async def view(store: Store, id: bytes) -> JobView:
    (found,) = await store.get([id])
    assert found is not None
    return found


async def test_a_job_is_told_signed_under_its_key_and_ends(everywhere: Store, pager: Receiver) -> None:
    made = delivery_job(FIRING, "pager")
    await everywhere.enqueue([made, delivery_job(FIRING, "room")])
    assert await courier(everywhere, webhook_of(pager, secret="k3y")).deliver() == 1
    (told,) = pager.told
    assert told.path == "/hook"
    assert (told.key, told.json["id"], told.json["namespace"]) == (id_text(made.id), id_text(made.id), "shop")
    assert told.headers[SIGNATURE.lower()] == signature("k3y", told.headers[TIMESTAMP.lower()], told.body)
    found = await view(everywhere, made.id)
    assert (found.state, found.result) == (State.succeeded, b'{"status":200}')
    assert (await everywhere.count()).now[QUEUE, "limpet.alert", State.ready] == 1, "the room's address is not here"
    assert await everywhere.sessions() == []


async def test_a_recovery_is_told_after_its_alert(store: Store, pager: Receiver) -> None:
    first = delivery_job(FIRING, "pager")
    await store.enqueue([first, delivery_job(RESOLVED, "pager", after=(first.id,))])
    assert await courier(store, webhook_of(pager)).deliver() == 2
    assert [told.json["state"] for told in pager.told] == ["firing", "resolved"]


@pytest.mark.parametrize(("status", "state"), [(503, State.scheduled), (429, State.scheduled), (404, State.dead)])
async def test_a_receiver_that_refuses_is_told_again_where_that_can_help(
    store: Store, pager: Receiver, status: int, state: State
) -> None:
    pager.answers = [status]
    made = delivery_job(FIRING, "pager")
    await store.enqueue([made])
    await courier(store, webhook_of(pager)).deliver()
    found = await view(store, made.id)
    assert (found.state, found.error_type) == (state, "WebhookRefused")
    assert found.reason == f"127.0.0.1 answered {status}"


async def test_the_same_key_and_body_are_told_with_every_attempt(store: Store, pager: Receiver) -> None:
    pager.answers = [500, 502]
    made = replace(delivery_job(FIRING, "pager"), policy=replace(POLICY, delays_ms=(0, 0)))
    await store.enqueue([made])
    assert await courier(store, webhook_of(pager)).deliver() == 3
    assert {(told.key, told.body) for told in pager.told} == {(id_text(made.id), pager.told[0].body)}
    assert (await view(store, made.id)).state is State.succeeded


async def test_a_receiver_says_when_it_may_be_told_again(store: Store, pager: Receiver) -> None:
    pager.answers, pager.headers = [503], {"Retry-After": "3600"}
    made = delivery_job(FIRING, "pager")
    await store.enqueue([made])
    await courier(store, webhook_of(pager)).deliver()
    found = await view(store, made.id)
    assert found.due_at_ms - await store.now() > 3_000_000


async def test_one_that_does_not_answer_costs_a_bounded_time(store: Store, pager: Receiver) -> None:
    pager.hold.clear()
    made = delivery_job(FIRING, "pager")
    await store.enqueue([made])
    await courier(store, webhook_of(pager, timeout_ms=50)).deliver()
    found = await view(store, made.id)
    assert (found.state, found.reason) == (State.scheduled, "127.0.0.1 did not answer within 0.05 s")


async def test_a_receiver_is_told_over_tls_if_its_certificate_is_trusted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, trusted = certificate(tmp_path)
    stranger, known = delivery_job(FIRING, "pager"), delivery_job(RESOLVED, "pager")
    with receiver(both) as pager:
        await store.enqueue([stranger])
        await courier(store, webhook_of(pager)).deliver()
        assert (await view(store, stranger.id)).reason.endswith("cannot be reached: SSLCertVerificationError")
        assert pager.told == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        await store.enqueue([known])
        await courier(store, webhook_of(pager)).deliver()
        assert (await view(store, known.id)).state is State.succeeded
        assert [told.json["state"] for told in pager.told] == ["resolved"]


async def test_an_address_is_told_in_no_error(store: Store) -> None:
    made = delivery_job(FIRING, "pager")
    await store.enqueue([made])
    with receiver() as gone:
        url = gone.url.replace("/hook", "/s3cret")
    await courier(store, Webhook("pager", url)).deliver()
    found = await view(store, made.id)
    assert (found.error_type, found.reason) == (
        "WebhookAway",
        "127.0.0.1 cannot be reached: ConnectionRefusedError",
    )


async def test_a_process_that_stops_hands_back_what_it_was_telling(store: Store, pager: Receiver) -> None:
    pager.hold.clear()
    made = delivery_job(FIRING, "pager")
    await store.enqueue([made])
    telling = asyncio.create_task(courier(store, webhook_of(pager)).deliver())
    await until(lambda: len(pager.told) == 1)
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    found = await view(store, made.id)
    assert (found.state, found.attempt) == (State.ready, 0)


async def test_a_job_that_cannot_be_read_dies(store: Store, pager: Receiver) -> None:
    made = replace(delivery_job(FIRING, "pager"), args=b'{"webhook": 5}')
    await store.enqueue([made])
    await courier(store, webhook_of(pager)).deliver()
    assert (await view(store, made.id)).state is State.dead
    assert pager.told == []


# -- a test by a person


async def test_a_test_is_told_on_the_way_that_alerts_take(everywhere: Store, pager: Receiver) -> None:
    await everywhere.put_control(AlertRules(webhooks=(WebhookRef("pager"), WebhookRef("room"))).control())
    alerts, here = Alerts(everywhere, "ada"), courier(everywhere, webhook_of(pager))
    told, waits = await alerts.test(wait=0.2, meanwhile=here.deliver)
    assert (told.webhook, told.delivered, told.text) == ("pager", True, "the receiver has taken it")
    assert (waits.webhook, waits.delivered, waits.state) == ("room", False, State.ready)
    assert waits.text == "no process with the address of webhook room has taken it yet"
    assert (pager.told[0].json["state"], pager.told[0].json["text"]) == ("test", "ada tests whether alerts arrive")
    pager.answers = [410]
    (refused,) = await alerts.test("pager", wait=30, meanwhile=here.deliver)
    assert (refused.delivered, refused.state, refused.text) == (False, State.dead, "127.0.0.1 answered 410")
    kinds = [(line.kind, line.data.get("webhooks")) for line in await Operator(everywhere, "ada").audit()]
    assert kinds.count(("alert.test", ["pager"])) == 1


# -- in the background of a process


async def test_a_runner_looks_and_tells_and_its_end_is_quiet(store: Store, pager: Receiver) -> None:
    fast = replace(DEFAULTS["dead_letters"], clear_after_ms=0)
    await store.put_control(AlertRules((fast,), (WebhookRef("pager"),), every_ms=100).control())
    table = AlertsTable(0.1, webhooks={"pager": WebhookTable(url=pager.url)})
    runner = AlertRunner(store, table, "shop")
    (id,) = await kill(store, job())
    runner.start()
    runner.start()
    await until(lambda: len(pager.told) == 1)
    await store.discard([id])
    await until(lambda: len(pager.told) == 2)
    await runner.stop()
    await runner.stop()
    assert [told.json["state"] for told in pager.told] == ["firing", "resolved"]


async def test_a_receiver_that_does_not_answer_holds_up_no_look(store: Store, pager: Receiver) -> None:
    await store.put_control(AlertRules((DEFAULTS["dead_letters"],), (WebhookRef("pager"),), every_ms=100).control())
    pager.hold.clear()
    runner = AlertRunner(store, AlertsTable(0.1, webhooks={"pager": WebhookTable(url=pager.url, timeout=30)}), "shop")
    await kill(store, job())
    runner.start()
    await until(lambda: len(pager.told) == 1)
    await kill(store, job(queue="pdf"))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if len(await Alerts(store, "ada").list()) == 2:
                break
            await asyncio.sleep(0.01)
    assert len(pager.told) == 1
    await runner.stop()


async def test_what_fails_is_complained_of_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()
    looks: list[str] = []

    class Broken:
        def __getattr__(self, name: str) -> object:
            looks.append(name)
            if len(looks) > 5:
                asked.set()
            raise StoreUnreachable("the line is dead") if len(looks) < 3 else ZeroDivisionError("a defect")

    runner = AlertRunner(cast(Store, Broken()), AlertsTable(0.1), "shop")
    with caplog.at_level(logging.WARNING, "limpet.alerts"):
        runner.start()
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await runner.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "alerts: a look failed: the line is dead",
        "alerts: a look failed: ZeroDivisionError('a defect')",
    ]


# -- an outage of the store

RULES = AlertRules(webhooks=(WebhookRef("pager"), WebhookRef("room", ("budget",))))
AWAY = StoreUnreachable("the line is dead")


class Time:
    now_ms = NOW


async def test_a_server_tells_that_the_store_is_away_and_that_it_is_back(pager: Receiver) -> None:
    time = Time()
    receivers = {name: webhook_of(pager, name=name) for name in ("pager", "room")}
    watch = AwayWatch(receivers, "shop", clock=lambda: time.now_ms)
    for second in (0, 29, 30, 40):
        time.now_ms = NOW + second * 1000
        await watch.failed(AWAY, RULES)
    await watch.back(RULES)
    await watch.back(RULES)
    said = [(told.json["state"], told.json["rule"], told.json["text"]) for told in pager.told]
    assert said == [
        ("firing", "store_away", "the store does not answer: the line is dead"),
        ("resolved", "store_away", "the store answers again"),
    ]
    assert len({told.key for told in pager.told}) == 2


async def test_a_short_outage_is_told_to_no_one(pager: Receiver) -> None:
    time = Time()
    watch = AwayWatch({"pager": webhook_of(pager)}, "shop", clock=lambda: time.now_ms)
    for _ in range(3):
        await watch.failed(AWAY, RULES)
        time.now_ms += 20_000
        await watch.back(RULES)
    await watch.failed(AWAY, AlertRules((), RULES.webhooks))
    time.now_ms += 60_000
    await watch.failed(AWAY, AlertRules((), RULES.webhooks))
    assert pager.told == []


async def test_an_outage_that_was_planned_is_told_only_if_it_outlasts_its_silence(pager: Receiver) -> None:
    time = Time()
    watch = AwayWatch({"pager": webhook_of(pager)}, "shop", clock=lambda: time.now_ms)
    book = Book(silences=(Silence("store_away", NOW + 60_000, "ada", NOW),))
    await watch.failed(AWAY, RULES, book)
    for second in (59, 60, 61):
        time.now_ms = NOW + second * 1000
        await watch.failed(AWAY, RULES, book)
        assert len(pager.told) == (second > 59)


async def test_a_receiver_that_was_away_too_is_told_when_it_is_back_and_of_no_end_it_has_not_heard_of(
    pager: Receiver,
) -> None:
    time = Time()
    watch = AwayWatch({"pager": webhook_of(pager)}, "shop", clock=lambda: time.now_ms)
    await watch.failed(AWAY, RULES)
    time.now_ms += 30_000
    pager.answers = [503, 200]
    await watch.failed(AWAY, RULES)
    await watch.failed(AWAY, RULES)
    await watch.failed(AWAY, RULES)
    assert [told.json["state"] for told in pager.told] == ["firing", "firing"]
    assert len({told.key for told in pager.told}) == 1
    other = AwayWatch({"pager": webhook_of(pager)}, "shop", clock=lambda: time.now_ms)
    await other.failed(AWAY, RULES)
    time.now_ms += 30_000
    pager.answers = [503]
    await other.failed(AWAY, RULES)
    await other.back(RULES)
    assert [told.json["state"] for told in pager.told] == ["firing"] * 3


async def until(true: object) -> None:
    """Wait until it is so."""
    assert callable(true)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if true():
                return
            await asyncio.sleep(0.005)
