"""Commands about queues, limits, breakers, agents and set-up."""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Serves
from limpet.stores.base import Store
from limpet.stores.sqlite.library import library
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, kill, put

RULES = (GateRule("limit:smtp", concurrency=1), GateRule("breaker:api", breaker=BreakerRule()))


async def one(store: Store) -> str:
    (id,) = await put(store, job(limits=("smtp",), breaker="api"), rules=RULES)
    return id_text(id)


def test_pause_and_resume(cli: Cli) -> None:
    id = cli.seed(one)
    cli("pause", "mail", "--reason", "deployment")
    assert "paused by" in cli("queues").out
    assert "because: deployment" in cli("explain", id).out
    assert cli("queues", "--json").json["queues"][0]["paused"]["reason"] == "deployment"
    assert cli("resume", "mail", "--json").json == {
        "key": "queue:mail",
        "changed": ["queue:mail"],
        "state": "resumed",
        "notes": [],
    }
    cli("pause", "--task", "send")
    cli("pause", "--all")
    assert {"task_paused", "all_paused"} <= {r["code"] for r in cli("explain", id, "--json").json["reasons"]}


def test_a_second_pause_says_what_becomes_of_the_first(cli: Cli) -> None:
    id = cli.seed(one)
    assert cli("pause", "mail", "--reason", "deployment").err == ""
    again = cli("pause", "mail").err
    assert "deployment; that stays" in again
    assert "deployment; that stays" in cli("pause", "mail", "--json").json["notes"][0]
    assert "because: deployment" in cli("explain", id).out
    assert "deployment; this replaces it" in cli("pause", "mail", "--reason", "provider is down").err
    assert "because: provider is down" in cli("explain", id).out
    assert [entry["reason"] for entry in cli("audit", "--json").json["entries"]] == ["deployment", "provider is down"]


def test_a_queue_that_nobody_knows_is_not_found(cli: Cli) -> None:
    cli.seed(one)
    ran = cli("pause", "mial", code=3)
    assert "did you mean 'mail'" in ran.err
    cli("pause", "future", "--new")
    cli("pause", code=2)
    cli("pause", "mail", "--all", code=2)


@pytest.mark.parametrize(("said", "fix"), [("task:send", "--task send"), ("queue:mail", ": mail")])
@pytest.mark.parametrize("verb", ["pause", "resume", "drain"])
def test_a_key_where_a_queue_is_meant_is_told_apart(cli: Cli, verb: str, said: str, fix: str) -> None:
    cli.seed(one)
    assert fix in cli(verb, said, code=3).err


def test_drain_waits_and_ends_paused(cli: Cli) -> None:
    async def finish(store: Store) -> None:
        from limpet.core.endings.transition import Succeed

        (claimed,) = await claim(store)
        await store.settle("w1", time.monotonic_ns(), [Succeed(claimed.id, claimed.token)])

    cli.seed(one)
    ran = cli("drain", "mail", "--wait", "--timeout", "10ms", code=7)
    assert "1 job is left" in ran.err
    assert "drain" in cli("enqueue", "send", "--queue", "mail", code=1).err
    cli.seed(finish)
    assert "drained" in cli("drain", "mail", "--wait").out
    assert cli("queues", "--json").json["queues"][0]["paused"] is not None


@pytest.mark.parametrize("what", [("--task", "send"), ("--all",)])
def test_a_task_and_everything_are_drained_until_they_are_empty(cli: Cli, what: tuple[str, ...]) -> None:
    async def finish(store: Store) -> None:
        from limpet.core.endings.transition import Succeed

        for claimed in await claim(store):
            await store.settle("w1", time.monotonic_ns(), [Succeed(claimed.id, claimed.token)])

    cli.seed(one)
    key = "all" if what == ("--all",) else "task:send"
    ran = cli("drain", *what, "--wait", "--timeout", "10ms", "--json", code=7)
    assert (ran.json["key"], ran.json["state"], ran.json["left"]) == (key, "draining", 1)
    refused = cli("enqueue", "send", "--queue", "other", code=1).err
    assert f"{'everything' if key == 'all' else 'task send'} is draining and takes no new jobs\n" in refused
    assert f"limpet resume {' '.join(what)}" in refused
    cli.seed(finish)
    assert f"{key}: drained" in cli("drain", *what, "--wait").out
    cli("resume", *what)
    cli("enqueue", "send", "--queue", "mail")
    assert len(cli.seed(claim)) == 1
    cli("drain", "mail", *what, code=2)


def test_a_full_queue_is_shown_and_waited_for(cli: Cli) -> None:
    cli("enqueue", "send", "--queue", "mail")
    cli("limits", "set", "queue:mail", "--depth", "1", "--tenant-depth", "1")
    ran = cli("enqueue", "send", "--queue", "mail", "--wait-for-room", "20ms", code=1)
    assert "queue 'mail' is full: its depth is 1, 1 wait" in ran.err
    assert "--wait-for-room 30s" in ran.err
    assert '"queue_full"' in cli("enqueue", "send", "--queue", "mail", "--json", code=1).err
    (queue,) = cli("queues", "--json").json["queues"]
    assert (queue["ready"], queue["depth"], queue["tenant_depth"]) == (1, 1, 1)
    assert "full: 1 may wait" in cli("queues").out
    assert "1 may wait, 1 of each tenant may wait" in cli("limits").out
    cli("limits", "set", "task:send", "--depth", "1", code=2)
    cli("limits", "clear", "queue:mail")
    cli("enqueue", "send", "--queue", "mail")


def test_retention_is_listed_set_and_cleared(cli: Cli) -> None:
    cli.seed(one)
    ran = cli("retention", "set", "mail", "--succeeded", "7d", "--dead", "forever", "--reason", "audit")
    assert ran.out.strip() == "mail: succeeded 7d (set), dead forever (set)"
    (kept,) = cli("retention", "--json").json["retention"]
    assert kept["keep"] == {"succeeded": 604_800.0, "dead": None}
    assert "7d (set)" in cli("retention").out
    (note,) = cli("retention", "set", "mial", "--dead", "1d", "--json").json["notes"]
    assert "did you mean 'mail'?" in note
    assert "as all queues" in cli("retention", "clear", "mail").out
    cli("retention", "clear", "mail", code=2)
    cli("retention", "set", "mail", code=2)
    cli("retention", "set", "mail", "--dead", "soon", code=2)


def test_limits_are_listed_set_and_cleared(cli: Cli) -> None:
    cli.seed(one)
    assert "limit:smtp" in cli("limits").out
    cli("limits", "set", "smtp", "--concurrency", "5", "--rate", "10/m", "--reason", "more")
    (limit,) = cli("limits", "list", "--json").json["limits"]
    assert (limit["concurrency"], limit["set_by"], limit["burst"]) == (5, "operator", 10)
    cli("limits", "clear", "smtp")
    cli("limits", "clear", "smpt", code=3)
    cli("limits", "set", "smtp", code=2)
    cli("limits", "set", "smtp", "--rate", "ten", code=2)


def test_a_limit_that_nothing_uses_is_set_with_a_note(cli: Cli) -> None:
    cli.seed(one)
    assert cli("limits", "set", "smtp", "--concurrency", "5", "--json").json["notes"] == []
    ran = cli("limits", "set", "smpt", "--concurrency", "5")
    assert "limit:smpt: set" in ran.out
    assert "no task or job uses limit 'smpt' yet; did you mean 'smtp'?" in ran.err
    assert "did you mean 'mail'?" in cli("limits", "set", "queue:mial", "--rate", "1/s", "--json").json["notes"][0]
    assert "--concurrency" in cli("limits", "set", "smtp", "--burst", "5", code=2).err


def test_breakers_are_tripped_and_reset(cli: Cli) -> None:
    id = cli.seed(one)
    cli("breakers", "trip", "api", "--for", "5m", "--reason", "provider")
    (breaker,) = cli("breakers", "--json").json["breakers"]
    assert breaker["state"] == "open"
    assert "breaker api is open" in cli("explain", id).out
    assert "open" in cli("breakers", "--open").out
    cli("breakers", "reset", "api")
    assert cli("breakers", "--open").out == ""
    cli("breakers", "trip", "nothing", code=3)


def test_breakers_are_listed_by_the_page_open_ones_first(cli: Cli) -> None:
    cli.seed(one)
    for name in ("webhook:zen", "webhook:acme", "other"):
        cli("breakers", "trip", name, "--new")
    cli("breakers", "reset", "webhook:zen")
    first = cli("breakers", "list", "webhook:", "--limit", "1", "--json").json
    assert [breaker["breaker"] for breaker in first["breakers"]] == ["webhook:acme"]
    ran = cli("breakers", "list", "webhook:", "--cursor", first["cursor"])
    assert "webhook:zen" in ran.out
    assert "webhook:acme" not in ran.out
    assert "more: --cursor" in cli("breakers", "-n", "1").err
    assert cli("breakers", "--open", "--limit", "2", "--json").json["cursor"] is not None
    assert cli("breakers", "--open", "--limit", "3", "--json").json["cursor"] is None
    assert len(cli("breakers", "--jsonl").out.splitlines()) == 4
    cli("breakers", "--cursor", "x", code=2)


def test_workers_and_stats(cli: Cli) -> None:
    async def alive(store: Store) -> None:
        await store.beat(Beat("web-1:77", 60_000, Serves(("mail",), ("send",), ("eu",)), b'{"pid":77}'))

    cli.seed(alive)
    assert "web-1:77" in cli("workers").out
    (worker,) = cli("workers", "--json").json["workers"]
    assert (worker["queues"], worker["capabilities"], worker["info"]) == (["mail"], ["eu"], {"pid": 77})
    assert cli("stats", "--json").json["ever"]["enqueued"] == 0
    assert "0 enqueued" in cli("stats").out


def test_doctor_exits_by_the_worst_finding(cli: Cli) -> None:
    async def served(store: Store) -> None:
        await store.beat(Beat("w1", 60_000, Serves()))

    cli("migrate")
    quiet = cli("doctor", "--json", code=None)
    assert quiet.code == {"ok": 0, "warning": 10}[quiet.json["worst"]]
    cli.seed(one)
    assert "no worker is alive" in cli("doctor", code=11).out
    cli.seed(served)
    cli.seed(lambda store: kill(store, job()))
    ran = cli("doctor", "--quiet", code=10)
    assert "dead" in ran.out
    assert "ok " not in ran.out


# -- agents


def test_an_agent_works_a_job_off(cli: Cli) -> None:
    cli.seed(one)
    got = cli("claim", "--agent", "a1", "--lease", "10m", "--json").json
    assert got["task"] == "send"
    token = str(got["token"])
    assert cli("heartbeat", got["id"], "--token", token, "--json").json["cancel_requested"] is False
    assert "succeeded" in cli("complete", got["id"], "--token", token, "--result", '{"ok":true}').out
    assert cli("job", got["id"], "--json").json["result"] == {"ok": True}
    stale = cli("complete", got["id"], "--token", token, code=4)
    assert stale.out == ""
    assert "stale lease" in stale.err
    assert "nothing to claim" in cli("claim", "--agent", "a1", code=8).err


def test_an_agent_fails_and_releases(cli: Cli) -> None:
    cli.seed(one)
    got = cli("claim", "--agent", "a1", "--capability", "eu,us", "--json").json
    token = str(got["token"])
    assert cli("release", got["id"], "--token", token, "--json").json["state"] == "ready"
    got = cli("claim", "--agent", "a1", "--queues", "mail", "--tasks", "send").out.split()
    id, token = got[0], got[2]
    assert "scheduled" in cli("fail", id, "--token", token, "--error", "no answer", "--retry-after", "30").out
    assert "no answer" in cli("explain", id).out
    cli("fail", id, "--token", token, "--error", "x", "--class", "fatal", code=2)
    cli("complete", id, "--token", "x", code=2)


# -- set-up


def test_a_store_that_is_not_there_is_exit_5_and_is_not_made(cli: Cli) -> None:
    for looks in (
        "jobs",
        "queues",
        "workers",
        "stats",
        "doctor",
        "events",
        "limits",
        "schedules",
        "flows",
        "approvals",
    ):
        assert f"there is no store at {cli.path}" in cli(looks, code=5).err
    relative = cli("jobs", "--url", "sqlite:///elsewhere.db", code=5).err
    assert f"there is no store at {cli.path.parent / 'elsewhere.db'} (url from --url)" in relative
    assert os.listdir(cli.path.parent) == []


def test_a_file_of_another_program_is_exit_5_and_is_not_changed(cli: Cli) -> None:
    with contextlib.closing(library.connect(str(cli.path), isolation_level=None)) as conn:
        conn.execute("CREATE TABLE auth_user (id INTEGER)")
        conn.execute("CREATE TABLE limpet_outbox (id INTEGER)")
    before = cli.path.read_bytes()
    for looks in ("jobs", "doctor", "hooks"):
        refused = cli(looks, code=5).err
        assert f"{cli.path} holds tables of another program, and no Limpet store (url from" in refused
        assert "`limpet migrate` makes a store in this file" in refused
    assert cli.path.read_bytes() == before
    assert os.listdir(cli.path.parent) == [cli.path.name]
    cli("migrate")
    assert "no jobs" in cli("jobs").err


def test_who_makes_a_store_is_told_where(cli: Cli) -> None:
    assert f"made a new store: {cli.path}" in cli("migrate").err
    assert "made" not in cli("migrate").err
    other = cli.path.parent / "other.db"
    assert f"made a new store: {other}" in cli("enqueue", "x", "--url", "sqlite:///other.db").err
    assert "made" not in cli("enqueue", "x", "--url", "sqlite:///other.db").err
    third = cli("enqueue", "x", "--url", "sqlite:///third.db", "--json").json
    assert third["made"] == str(cli.path.parent / "third.db")
    assert cli("enqueue", "x", "--url", "sqlite:///third.db", "--json").json["made"] is None


def test_a_store_is_named_by_its_absolute_path(cli: Cli) -> None:
    shown = f"sqlite:///{cli.path.parent}/a%20b.db?sync=normal"
    url = ("--url", "sqlite:///a%20b.db?sync=normal")
    assert cli("config", *url, "--json").json["url"]["value"] == shown
    assert f"url        {shown}  from --url" in cli("config", *url).out
    cli("migrate", *url)
    assert cli("doctor", *url, code=None).out.startswith(f"store    {shown}, namespace default\n")
    assert cli("doctor", *url, "--json", code=None).json["url"] == shown


def test_priorities_are_shown_in_words(cli: Cli) -> None:
    for given, shown in (("high", "high (3)"), ("4", "4"), ("0", "critical (0)")):
        id = cli("enqueue", "x", "--priority", given).out.strip()
        assert f"  priority     {shown}\n" in cli("job", id).out
    for name, given in (("word", "low"), ("number", "8")):
        cli("schedules", "add", "x", "--name", name, "--every", "5m", "--priority", given)
        assert '"priority":"low (8)"' in cli("schedules", "show", name).out


def test_urls_that_cannot_work(cli: Cli) -> None:
    assert "memory" in cli("jobs", "--url", "sqlite://", code=2).err
    assert "memory" in cli("enqueue", "x", "--url", "sqlite://", code=2).err
    cli("jobs", "--url", "nonsense", code=2)
    cli("jobs", "--url", "sqlite:////proc/nowhere/jobs.db", code=5)


def test_config_says_which_source_won(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("config", "--json").json["url"]["source"] == "LIMPET_URL"
    assert cli("config", "--url", "sqlite:///other.db", "--json").json["url"]["source"] == "--url"
    monkeypatch.delenv("LIMPET_URL")
    (cli.path.parent / "limpet.toml").write_text('namespace = "shop"\n')
    ran = cli("config")
    assert "from default" in ran.out
    assert "shop" in ran.out
    (cli.path.parent / "limpet.toml").write_text('namspace = "shop"\n')
    assert "did you mean 'namespace'" in cli("config", code=2).err


def test_namespaces_are_apart(cli: Cli) -> None:
    cli("enqueue", "x", "--namespace", "one")
    assert cli("jobs", "--namespace", "two", "--json").json["jobs"] == []
    assert len(cli("jobs", "--namespace", "one", "--json").json["jobs"]) == 1


def test_completion_scripts_and_help(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_LIMPET_COMPLETE" in cli("completion", shell).out
    assert "dead" in cli("--help").out
    for command in ("worker", "enqueue", "jobs", "drain", "claim", "doctor", "dead"):
        assert "Usage: limpet" in cli(command, "--help").out


def test_an_answer_that_is_no_success_is_data_too(cli: Cli) -> None:
    assert cli("migrate", "--json", code=None).code == 0
    assert cli("claim", "--agent", "a", "--json", code=8).json == {"id": None}
    cli("enqueue", "t", "--queue", "mail")
    ran = cli("drain", "mail", "--wait", "--timeout", "10ms", "--json", code=7)
    assert ran.json == {"key": "queue:mail", "state": "draining", "left": 1}
    assert ran.err == ""
