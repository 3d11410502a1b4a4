"""The commands about alerts: what fires, by which rules, silences, and a test that reaches a real receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet.core.alerts.rule import DEFAULTS, AlertRules, WebhookRef
from limpet.ops.alert_look import AlertLook
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import job, kill
from tests.servers.receiver import receiver


async def fires(store: Store) -> None:
    await store.put_control(AlertRules((DEFAULTS["dead_letters"],), (WebhookRef("pager"),)).control())
    await kill(store, job())
    await AlertLook(store, "a").look()


async def published(store: Store) -> None:
    await store.put_control(AlertRules(webhooks=(WebhookRef("pager"),)).control())


async def opened(store: Store) -> None:
    await store.open()


def test_alerts_are_listed_and_silenced(cli: Cli) -> None:
    cli.seed(fires)
    head, line = cli("alerts").out.splitlines()
    assert head.split() == ["ALERT", "STATE", "FOR", "SILENCED", "WHAT"]
    assert line.startswith("dead_letters:mail  firing")
    assert line.endswith("1 dead job waits for a person in queue mail: send (1)")
    (shown,) = cli("alerts", "--open", "--json").json["alerts"]
    assert (shown["alert"], shown["told"], shown["fix"]) == ("dead_letters:mail", True, "limpet dead causes")
    said = cli("alerts", "silence", "dead_letters", "--for", "2h", "--reason", "we know")
    assert said.out.startswith("dead_letters: silenced until 2")
    (silence,) = cli("alerts", "silences", "--json").json["silences"]
    assert (silence["pattern"], silence["reason"]) == ("dead_letters", "we know")
    assert "1h59m" in cli("alerts").out
    assert cli("alerts", "unsilence", "dead_letters").out == "dead_letters: not silenced\n"
    assert "did you mean 'dead_letters'" in cli("alerts", "silence", "dead_leters", code=2).err
    assert cli("alerts", "unsilence", "dead_letters", code=3).err.startswith("limpet: there is no silence")
    assert "alert dead_letters:mail fires: 1 dead job waits" in cli("events").out


def test_rules_are_listed_with_those_that_hear_of_them(cli: Cli) -> None:
    cli.seed(published)
    lines = {line.split()[0]: line.split() for line in cli("alerts", "rules").out.splitlines()}
    assert lines["dead_letters"] == ["dead_letters", "from", "1", "on", "0ms", "1m", "pager"]
    assert lines["no_worker"] == ["no_worker", "for", "each", "task", "1m", "1m", "pager"]
    assert lines["oldest_ready"][1:4] == ["from", "15m", "on"]
    assert len(cli("alerts", "rules", "--json").json["rules"]) == len(lines) - 1


def test_a_test_reaches_the_receiver_from_here(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.seed(opened)
    assert "there are no webhooks" in cli("alerts", "test", code=3).err
    with receiver() as pager:
        monkeypatch.setenv("PAGER", pager.url)
        (tmp_path / "limpet.toml").write_text('[alerts.webhooks.pager]\nurl_env = "PAGER"\n')
        ran = cli("alerts", "test")
        assert ran.out.splitlines()[1].split()[:2] == ["pager", "delivered"]
        assert pager.told[0].json["state"] == "test"
        pager.answers = [404]
        (refused,) = cli("alerts", "test", "pager", "--json", code=1).json["tests"]
        assert (refused["state"], refused["text"]) == ("dead", "127.0.0.1 answered 404")
        monkeypatch.delenv("PAGER")
        assert "no process with the address" in cli("alerts", "test", "--wait", "0s", code=7).out
        assert "did you mean 'pager'" in cli("alerts", "test", "pagr", code=3).err
