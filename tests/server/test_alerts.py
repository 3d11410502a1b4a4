"""Alerts over HTTP; and a real `limpet serve` tells what no worker can: that none lives, and that the store is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.core.alerts.rule import DEFAULTS, NAMES, AlertRules, WebhookRef
from limpet.core.jobs.state import State
from limpet.ops import Operator
from limpet.ops.alert_look import AlertLook
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.ops.making import job, kill, put
from tests.server.asking import Client
from tests.server.served import served
from tests.server.serving import until
from tests.servers import redis
from tests.servers.flavours import REDIS
from tests.servers.receiver import Receiver, receiver

ONE = AlertRules((DEFAULTS["dead_letters"],), (WebhookRef("pager"),))


@pytest.fixture
def pager() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def settings(folder: Path, pager: Receiver, **rules: str) -> None:
    """A settings file in which only these rules are on."""
    lines = [f"{name} = {rules.get(name, 'false')}" for name in NAMES]
    text = "\n".join(["[alerts]", 'every = "100ms"', "[alerts.rules]", *lines])
    (folder / "limpet.toml").write_text(f'{text}\n[alerts.webhooks.pager]\nurl = "{pager.url}"\n')


async def heard(pager: Receiver, *states: str) -> list[tuple[str, str, str]]:
    """What was told, each thing once, when these states were: state, rule and subject of each."""

    async def all_of_them() -> bool:
        return len({told.key for told in pager.told}) >= len(states)

    await until(all_of_them)
    said = [told.json for told in {told.key: told for told in list(pager.told)}.values()]
    assert [each["state"] for each in said] == [*states]
    return [(each["state"], each["rule"], each["subject"]) for each in said]


async def test_alerts_are_listed_silenced_and_tested(store: Store, client: Client) -> None:
    await store.put_control(ONE.control())
    await kill(store, job())
    await AlertLook(store, "a").look()
    (alert,) = (await client.get("/api/v1/alerts")).json["alerts"]
    assert (alert["alert"], alert["state"], alert["told"]) == ("dead_letters:mail", "firing", True)
    (rule,) = (await client.get("/api/v1/alerts/rules")).json["rules"]
    assert (rule["rule"], rule["webhooks"]) == ("dead_letters", ["pager"])
    body = {"pattern": "dead_letters:mail", "duration": "2h", "reason": "we know"}
    made = (await client.post("/api/v1/alerts/silences", body)).json
    assert (made["pattern"], made["reason"]) == ("dead_letters:mail", "we know")
    assert (await client.get("/api/v1/alerts/silences")).json["silences"] == [made]
    ended = await client.ask("DELETE", "/api/v1/alerts/silences/dead_letters:mail")
    assert (ended.status, (await client.get("/api/v1/alerts/silences")).json["silences"]) == (200, [])
    refused = await client.post("/api/v1/alerts/silences", {"pattern": "dead_leters"})
    assert (refused.status, refused.json["fix"]) == (422, "did you mean 'dead_letters'?")
    assert (await client.ask("DELETE", "/api/v1/alerts/silences/budget")).problem == "unknown_name"
    (told,) = (await client.post("/api/v1/alerts/test", {})).json["tests"]
    assert (told["webhook"], told["delivered"], told["state"]) == ("pager", False, "ready")
    assert (await client.post("/api/v1/alerts/test", {"webhook": "pagr"})).json["fix"] == "did you mean 'pager'?"
    assert (await client.get(f"/api/v1/jobs/{told['job']}")).json["queue"] == "limpet.alerts"


async def test_a_server_tells_that_no_worker_lives_and_that_all_is_well_again(tmp_path: Path, pager: Receiver) -> None:
    settings(tmp_path, pager, no_worker='{ for = "0s", clear_after = "0s" }')
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    (id,) = await put(store, job())
    async with served(tmp_path):
        await heard(pager, "firing")
        await store.cancel([id], "it is not needed")
        told = await heard(pager, "firing", "resolved")

        async def is_over() -> bool:  # a receiver has it before its job has ended
            kinds = {each.kind for each in await Operator(store, "ada").events()}
            ended = (await store.count()).now.get(("limpet.alerts", "limpet.alert", State.succeeded))
            return (ended, kinds) == (2, {"alert.firing", "alert.resolved"})

        await until(is_over)
    assert [each[1:] for each in told] == [("no_worker", "send")] * 2
    assert pager.told[0].json["text"] == "1 job of send waits in queue mail, and no live worker runs it there"
    await store.close()


@pytest.mark.redis
async def test_a_server_tells_directly_that_its_store_is_away_and_back(tmp_path: Path, pager: Receiver) -> None:
    settings(tmp_path, pager, store_away='{ for = "0s" }')
    with redis.own(REDIS) as server:
        async with served(tmp_path, "--url", server.url):
            server.kill()
            await heard(pager, "firing")
            server.restart()
            told = await heard(pager, "firing", "resolved")
    assert [each[1:] for each in told] == [("store_away", "store")] * 2
    assert pager.told[0].key != pager.told[1].key
