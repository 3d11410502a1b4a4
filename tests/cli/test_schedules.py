"""Commands about schedules."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from limpet.core.jobs.lease import Beat, Serves
from limpet.core.schedules.declared import FIELD, redeclared
from limpet.core.schedules.schedule import REVISION, Schedule
from limpet.core.schedules.when import Every
from limpet.core.text.duration import instant_ms
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.runtime.ticking import Stage

DIGEST = Schedule.declare(Every("1h"), task="digest")


async def worker(store: Store) -> None:
    """A live worker without schedules of its own."""
    await store.beat(Beat("w1", 60_000, Serves((), ("tidy", "known", "paris")), msgspec.json.encode({FIELD: {}})))


async def declared(store: Store) -> None:
    """What a worker whose code declares a schedule has stored."""
    stored = redeclared(DIGEST, None, (), 0)
    assert stored is not None
    await store.put_control(stored.control())
    await store.put_control(REVISION)


async def alive(store: Store) -> None:
    said = {FIELD: {DIGEST.name: DIGEST.fingerprint}}
    await store.beat(Beat("w1", 60_000, Serves((), (DIGEST.task,)), msgspec.json.encode(said)))


def test_a_schedule_is_added_listed_shown_and_removed(cli: Cli) -> None:
    cli.seed(worker)
    ran = cli(
        "schedules", "add", "digest", '{"to":"ada"}', "--name", "morning", "--cron", "0 8 * * MON-FRI", "--tz",
        "Europe/Paris", "--overlap", "queue-one", "--priority", "low", "--jitter", "30", "--reason", "asked for",
    )  # fmt: skip
    assert "morning: added; every weekday at 08:00 Europe/Paris" in ran.out
    assert "  next " in ran.out
    assert "no worker has published task 'digest' yet" in ran.err
    (row,) = [line for line in cli("schedules").out.splitlines() if line.startswith("morning")]
    assert "on" in row
    assert "every weekday at 08:00 Europe/Paris" in row
    shown = cli("schedules", "show", "morning").out
    assert 'task      digest {"to":"ada"}' in shown
    assert "overlap queue_one, catch up last, jitter 30 s" in shown
    shape = cli("schedules", "show", "morning", "--json").json
    assert (shape["rule"], shape["source"], shape["ticks"]) == (
        {"type": "cron", "expr": "0 8 * * MON-FRI", "tz": "Europe/Paris"},
        "runtime",
        [],
    )
    assert len(shape["next_at"]) == 5
    assert "needs a yes" in cli("schedules", "remove", "morning", code=2).err
    assert "morning: removed" in cli("schedules", "remove", "morning", "--yes").out
    assert "no schedules" in cli("schedules", "list").err
    entries = cli("audit", "--json").json["entries"]
    assert [(entry["kind"], entry["reason"]) for entry in entries] == [
        ("schedule.add", "asked for"),
        ("schedule.remove", None),
    ]


def test_what_is_changed_leaves_the_rest(cli: Cli) -> None:
    cli.seed(worker)
    added = cli("schedules", "add", "tidy", "{}", "--every", "5m", "--overlap", "allow", "--queue", "night")
    assert "not the task's signature" not in added.err
    assert "not the task's signature" in cli("schedules", "add", "known", '{"n":1}', "--every", "1h").err
    cli("schedules", "add", "paris", "--cron", "0 8 * * *", "--tz", "Europe/Paris")
    assert "09:00 Europe/Paris" in cli("schedules", "change", "paris", "--cron", "0 9 * * *").out
    shape = cli("schedules", "change", "tidy", "--cron", "@daily", "--catch-up", "3", "--json").json
    assert (shape["when"], shape["overlap"], shape["catch_up"]) == ("every day at 00:00 UTC", "allow", "all up to 3")
    assert shape["options"] == {"queue": "night"}
    for said, expires_in_s in (("1h", 3600), ("none", None)):
        shape = cli("schedules", "change", "tidy", "--expires-in", said, "--json").json
        assert shape["expires_in_s"] == expires_in_s
    shape = cli("schedules", "change", "tidy", "--args", '{"n":1}', "--attempts", "2", "--timeout", "1m", "--json").json
    assert (shape["args"], shape["options"]) == ({"n": 1}, {"queue": "night", "retry": 2, "timeout": 60.0})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["add", "tidy"], 2, "when?"),
        (["add", "tidy", "--every", "5m", "--cron", "@daily"], 2, "contradict each other"),
        (["add", "tidy", "--every", "5m", "--tz", "UTC"], 2, "says nothing about --every"),
        (["add", "tidy", "--cron", "0 25 * * *"], 2, "hour '25' is out of range"),
        (["add", "tidy", "--cron", "@daily", "--tz", "Paris"], 2, "did you mean 'Europe/Paris'"),
        (["add", "tidy", "--at", "2020-01-01"], 2, "would never run"),
        (["add", "tidy", "--at", "noon"], 2, "is not a time"),
        (["add", "tidy", "--at", "7d"], 2, "is not a time"),
        (["add", "tidy", "--at", "9999-12-31T23:00-05:00"], 2, "is beyond the calendar"),
        (["change", "known"], 2, "what is to change about schedule 'known'"),
        (["backfill", "known", "--from", "2026-03-02", "--to", "2026-03-01"], 2, "swap the two"),
        (["add", "tidy", "--every", "5m", "--overlap", "sometimes"], 2, "overlap='sometimes' is unknown"),
        (["add", "known", "--every", "5m"], 4, "already"),
        (["change", "known", "--tz", "UTC"], 2, "does not say when"),
        (["show", "knwon"], 3, "did you mean 'known'"),
        (["run", "nothing"], 3, "no schedule is called"),
        (["backfill", "known"], 2, "--from"),
        (["backfill", "known", "--from", "yesterday"], 2, "is not a time"),
        (["reset", "known"], 2, "not declared by code"),
        (["lst"], 2, "did you mean 'list'"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: list[str], code: int, said: str) -> None:
    cli.seed(worker)
    cli("schedules", "add", "known", "--every", "1h")
    ran = cli("schedules", *words, code=code)
    assert said in ran.err


def test_pause_and_resume(cli: Cli) -> None:
    cli.seed(worker)
    cli("schedules", "add", "tidy", "--every", "1h")
    assert "tidy: paused" in cli("schedules", "pause", "tidy", "--reason", "too loud").out
    assert "too loud" in cli("schedules").out
    assert cli("schedules", "next", "--json").json == {"runs": []}
    assert "tidy: resumed; every hour" in cli("schedules", "resume", "tidy").out
    runs = cli("schedules", "next", "tidy", "-n", "3", "--json").json["runs"]
    assert [run["schedule"] for run in runs] == ["tidy", "tidy", "tidy"]
    assert ", in " in cli("schedules", "next").out


def test_a_run_now_prints_its_job(cli: Cli) -> None:
    cli.seed(worker)
    cli("schedules", "add", "tidy", "--every", "1h")
    id = cli("schedules", "run", "tidy").out.strip()
    assert "ready" in cli("job", id).out
    ran = cli("schedules", "run", "tidy", code=4)
    assert (ran.out.strip(), "not finished yet" in ran.err) == (id, True)
    assert cli("schedules", "run", "tidy", "--existing-ok", "--json").json == {
        "schedule": "tidy",
        "id": id,
        "existing": True,
    }


def test_a_backfill_counts_asks_and_enqueues(cli: Cli) -> None:
    cli.seed(worker)
    cli("schedules", "add", "tidy", "--cron", "0 8 * * *", "--tz", "Europe/Berlin")
    asked = ("schedules", "backfill", "tidy", "--from", "2026-03-27", "--to", "2026-03-30T12:00")
    assert "tidy has 4 ticks there" in cli(*asked, "--dry-run").out
    assert "needs a yes" in cli(*asked, code=2).err
    report = cli(*asked, "--yes", "--json").json
    assert (report["ticks"], report["enqueued"], report["first_at"], report["last_at"]) == (
        4,
        4,
        "2026-03-27T07:00:00.000Z",
        "2026-03-30T06:00:00.000Z",
    )
    assert "0 runs enqueued, 4 are stored already" in cli(*asked, "--yes").out
    assert "4 runs enqueued" in cli(*asked, "--yes", "--again").out
    assert "no tick" in cli("schedules", "backfill", "tidy", "--from", "2s", "--to", "1s").out
    report = cli("schedules", "backfill", "tidy", "--from", "2s", "--json").json
    assert (report["ticks"], report["dry_run"]) == (0, False)
    tagged = cli("jobs", "tag:schedule:tidy", "--json").json["jobs"]
    assert len(tagged) == 8


def test_what_the_code_has_dropped_is_named_with_the_way_to_be_rid_of_it(cli: Cli) -> None:
    cli.seed(declared)
    cli.seed(worker)
    ran = cli("schedules")
    assert "absent" in ran.out
    assert "→ limpet schedules remove digest" in ran.err
    assert "schedule digest is no longer in the code" in cli("doctor", code=10).out
    assert "schedules remove digest" in cli("schedules", "show", "digest").out


def test_what_live_code_declares_can_be_paused_and_not_removed(cli: Cli) -> None:
    cli.seed(declared)
    cli.seed(alive)
    assert "take it out of the code" in cli("schedules", "remove", "digest", "--yes", code=1).err
    cli("schedules", "pause", "digest")
    cli("schedules", "change", "digest", "--every", "2h")
    assert "given back to the code" in cli("schedules", "reset", "digest").out


def test_ticks_are_shown_with_what_became_of_them(cli: Cli) -> None:
    cli.seed(worker)
    cli("schedules", "add", "work", "--name", "tidy", "--every", "1h")
    next_at = cli("schedules", "show", "tidy", "--json").json["next_at"]

    async def passed(store: Store) -> None:
        for text in (next_at[0], next_at[1], next_at[4]):
            await Stage(store, instant_ms(datetime.fromisoformat(text))).tick()

    cli.seed(passed)
    lines = cli("schedules", "show", "tidy").out.splitlines()
    first = cli("jobs", "tag:schedule:tidy", "--oldest", "--json").json["jobs"][0]["id"]
    told = [line.partition("UTC  ")[2] for line in lines[-5:]]
    assert told == [
        f"dropped: overlap  job {first} is in its way",
        f"dropped: overlap  job {first} is in its way",
        "dropped: missed",
        f"dropped: overlap  job {first} is in its way",
        f"fired  {first}  ready",
    ]
