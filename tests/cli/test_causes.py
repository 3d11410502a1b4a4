"""The commands about causes: list them, show one, say what becomes of it."""

from __future__ import annotations

import pytest

from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import job, kill

DNS = "cause-DnsError"


async def two(store: Store) -> None:
    await kill(store, job("send"), job("send"), error="DnsError", message="no such host")
    await kill(store, job("pdf", queue="paper"), error="TimeoutError", message="no answer")


def test_what_is_said_of_a_cause_is_told_and_kept(cli: Cli) -> None:
    cli.seed(two)
    for words, said in {
        ("acknowledge",): "acknowledged by ",
        ("assign", "ada"): ", assigned to ada",
        ("note", "see ticket 7"): "acknowledged by ",
        ("snooze", "2h"): "snoozed until ",
        ("snooze", "2099-11-19T08:00Z"): "snoozed until 2099-11-19T08:00:00.000Z by ",
        ("resolve",): "resolved by ",
        ("reopen",): "open by ",
    }.items():
        verb, *rest = words
        assert said in cli("dead", verb, DNS, *rest, "--reason", "r").out
    found = cli("dead", "cause", DNS, "--json").json
    assert (found["status"], found["assignee"], found["note"], found["version"]) == ("open", "ada", "see ticket 7", 7)
    ran = cli("dead", "escalate", DNS, "--to", "network team", "--reason", "since noon", "--json")
    assert ran.json["assignee"] == "network team"
    assert "(2 dead jobs) to network team: since noon" in cli("events").out
    last = cli("audit", "--limit", "1").out.splitlines()[1]
    assert "cause.escalate" in last
    assert DNS in last


def test_one_cause_is_shown_with_its_hours_and_jobs(cli: Cli) -> None:
    cli.seed(two)
    cli("dead", "note", DNS, "see ticket 7")
    out = cli("dead", "cause", "cause-Dns").out
    for said in ("2 dead, open", "DnsError: no such host", "send (queue mail)", "·█\n", "see ticket 7", "attempt 1/5"):
        assert said in out
    listed = cli("dead", "causes", "--hours").out.splitlines()
    assert listed[0].split()[-4:] == ["PER", "HOUR", "24", "HOURS"]
    assert "ASSIGNEE" not in listed[0]


def test_causes_are_listed_by_status_and_assignee(cli: Cli) -> None:
    cli.seed(two)
    cli("dead", "assign", DNS, "ada")
    cli("dead", "resolve", "cause-Time", "--queue", "paper")

    def causes(*words: str) -> list[str]:
        return [one["cause"] for one in cli("dead", "causes", *words, "--json").json["causes"]]

    assert causes("--status", "open") == [DNS]
    assert causes("--status", "resolved") == ["cause-TimeoutError"]
    assert causes("--status", "resolved", "--status", "open") == [DNS, "cause-TimeoutError"]
    assert causes("--assignee", "ada") == [DNS]
    assert "ASSIGNEE" in cli("dead", "causes").out


def test_a_dry_run_and_a_version_guard(cli: Cli) -> None:
    cli.seed(two)
    assert "would be resolved" in cli("dead", "resolve", DNS, "--dry-run").out
    assert cli("dead", "acknowledge", DNS, "--if-version", "0", "--json").json["version"] == 1
    error = cli("dead", "resolve", DNS, "--if-version", "0", code=4).err
    assert "changed meanwhile, and is at version 1" in error


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("resolve", "nothing"), 3, "there is no cause 'nothing'"),
        (("resolve", "cause-"), 2, "fits more than one cause"),
        (("snooze", DNS, "soon"), 2, "neither a duration nor an instant"),
        (("snooze", DNS, "2099-11-19T08:00"), 2, "has no time zone"),
        (("snooze", DNS, "2020-11-19T08:00Z"), 2, "has passed"),
        (("assign", DNS), 2, "limpet dead assign CAUSE WHO, or --none"),
        (("assign", DNS, "ada", "--none"), 2, "say whose it is"),
        (("escalate", DNS), 2, "--to"),
        (("causes", "--status", "done"), 2, "'done'"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    cli.seed(two)
    assert said in cli("dead", *words, code=code).err
