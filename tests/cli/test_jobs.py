"""Commands about jobs: what they print, what they change, how they exit."""

from __future__ import annotations

import time

import msgspec
import pytest

from limpet.core.endings.transition import Failure, RetryAfter, Succeed
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, kill, put


def states(cli: Cli) -> dict[str, int]:
    counts = cli("stats", "--json").json
    return {name: counts[name] for name in ("ready", "scheduled", "running", "dead", "cancelled") if counts[name]}


async def mixed(store: Store) -> list[str]:
    """Two dead, three ready, one scheduled."""
    dead = await kill(
        store, job(args={"to": "a"}), job(args={"to": "b"}), error="TimeoutError", message="no\x1b answer"
    )
    rest = await put(store, *(job("pdf", queue="export") for _ in range(3)), job("later", delay_ms=3_600_000))
    return [id_text(id) for id in (*dead, *rest)]


def test_jobs_are_listed_for_people_and_programs(cli: Cli) -> None:
    ids = cli.seed(mixed)
    shown = cli("jobs", "state:dead", "error:Timeout")
    assert ids[0] in shown.out
    assert "TimeoutError: no" in shown.out
    assert "\x1b" not in shown.out
    whole = cli("jobs", "--json").json
    assert {line["id"] for line in whole["jobs"]} == set(ids)
    lines = cli("jobs", "queue:export", "--jsonl").out.splitlines()
    assert [msgspec.json.decode(line)["task"] for line in lines] == ["pdf"] * 3


async def orders(store: Store) -> None:
    await kill(store, job("bill", args={"n": 3}), error="HTTPError", message="not found: order 7")
    await put(store, *(job("bill", args={"n": n}) for n in (5, 12, 9_007_199_254_740_993)))


def test_numbers_times_and_words_narrow_a_list(cli: Cli) -> None:
    cli.seed(orders)

    def count(*words: str) -> int:
        return len(cli("jobs", *words, "--json").json["jobs"])

    assert [count("args.n>5"), count("args.n>=5"), count("-args.n>5")] == [2, 3, 2]
    assert [count("args.n>9007199254740992"), count("args.n>9007199254740993")] == [1, 0]
    assert [count("finished<1h"), count("finished>1h"), count("-finished<1h")] == [1, 0, 3]
    assert [count("BILL"), count("bill", "httperror"), count("not found"), count("error:not found")] == [4, 1, 1, 1]
    assert count("found not") == 0
    assert "state:dead for a state" in cli("jobs", "dead").err


def test_since_asks_for_the_newest_part_of_a_list(cli: Cli) -> None:
    cli.seed(orders)
    cli("cancel", "args.n>=12", "--yes", "--reason", "too dear")
    for since, (jobs, dead, causes, lines) in {"1h": (4, 1, 1, 2), "2099-01-01T00:00Z": (0, 0, 0, 0)}.items():
        assert len(cli("jobs", "--since", since, "--json").json["jobs"]) == jobs
        assert len(cli("dead", "list", "--since", since, "--json").json["jobs"]) == dead
        assert len(cli("dead", "causes", "--since", since, "--json").json["causes"]) == causes
        assert len(cli("audit", "--since", since, "--json").json["entries"]) == lines
    assert cli("events", "--since", "1h", "--json").json["events"] == []
    assert len(cli("jobs", "--since", "2001-01-01T00:00:00+01:00", "--json").json["jobs"]) == 4


def test_an_action_asks_for_more_than_a_word(cli: Cli) -> None:
    """A word may be what a script made of a missing id."""
    cli.seed(orders)
    assert "not a job id" in cli("cancel", "null", "--yes", code=3).err
    assert "not a job id" in cli("cancel", "bill", "--yes", code=3).err
    assert cli("cancel", "bill", "state:ready", "args.n<10", "--yes", "--json").json["done"] == 1
    assert cli("cancel", '"bill"', "-state:dead", "--yes", "--json").json["done"] == 2


def test_a_negated_condition_is_not_an_option(cli: Cli) -> None:
    cli.seed(mixed)
    found = cli("jobs", "-task:pdf", "-state:dead", "--json").json
    assert [line["task"] for line in found["jobs"]] == ["later"]


def test_pages_are_followed_by_cursor(cli: Cli) -> None:
    ids = cli.seed(mixed)
    first = cli("jobs", "--limit", "4", "--json").json
    second = cli("jobs", "--limit", "4", "--cursor", first["cursor"], "--json").json
    assert {line["id"] for page in (first, second) for line in page["jobs"]} == set(ids)
    assert "--cursor" in cli("jobs", "--limit", "4").err


def test_an_empty_answer_says_so_and_suggests(cli: Cli) -> None:
    cli.seed(mixed)
    nothing = cli("jobs", "queue:exprot")
    assert nothing.out == ""
    assert "did you mean 'export'" in nothing.err


def test_one_job_is_shown_with_its_attempts_by_the_end_of_its_id(cli: Cli) -> None:
    ids = cli.seed(mixed)
    shown = cli("job", ids[0][-12:])
    assert "TimeoutError" in shown.out
    assert '"to": "a"' in shown.out
    assert "\x1b" not in shown.out
    shape = cli("job", ids[0], "--json").json
    assert shape["state"] == "dead"
    assert [attempt["outcome"] for attempt in shape["history"]] == ["dead"]


def test_explain_says_why_in_words_and_as_data(cli: Cli) -> None:
    ids = cli.seed(mixed)
    assert "scheduled to start in 59m" in cli("explain", ids[5]).out
    shape = cli("explain", ids[5], "--json").json
    assert shape["reasons"][0]["code"] == "scheduled"
    assert shape["reasons"][0]["until"].endswith("Z")


def test_a_job_that_is_not_there_and_what_is_no_id_are_exit_3(cli: Cli) -> None:
    cli.seed(mixed)
    gone = cli("job", "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", "--json", code=3)
    assert gone.out == ""
    assert msgspec.json.decode(gone.err)["error"]["code"] == "job_not_found"
    assert "is not a job id" in cli("job", "hello", code=3).err
    cli("explain", "00000000ffff", code=3)


# -- bulk


def test_a_dry_run_counts_and_shows_three(cli: Cli) -> None:
    cli.seed(mixed)
    ran = cli("cancel", "queue:export", "--dry-run")
    assert "would cancel 3 jobs" in ran.out
    assert ran.err.count("pdf") == 3
    assert states(cli) == {"ready": 3, "scheduled": 1, "dead": 2}


def test_a_query_needs_a_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    cli.seed(mixed)
    ran = cli("cancel", "queue:export", code=2)
    assert "--yes" in ran.err
    assert states(cli)["ready"] == 3
    assert "cancel: 3 cancelled" in cli("cancel", "queue:export", "--yes", "--reason", "wrong list").out
    assert states(cli) == {"scheduled": 1, "dead": 2, "cancelled": 3}
    entries = cli("audit", "--json").json["entries"]
    assert {(entry["kind"], entry["reason"], entry["data"]["query"]) for entry in entries} == {
        ("job.cancel", "wrong list", "queue:export")
    }
    assert all("@" in entry["actor"] for entry in entries)


def test_a_query_that_matches_nothing_is_no_failure(cli: Cli) -> None:
    cli.seed(mixed)
    assert "no job matched" in cli("cancel", "task:nothing", "--yes").out
    cli("cancel", "task:nothing")


def test_jobs_named_one_by_one_need_no_yes_but_must_change(cli: Cli) -> None:
    ids = cli.seed(mixed)
    cli("cancel", ids[2])
    assert "finished" in cli("cancel", ids[0], code=1).out
    cli("retry", ids[3], code=1)


def test_retry_with_edited_arguments(cli: Cli) -> None:
    ids = cli.seed(mixed)
    cli("retry", ids[0], "--patch", '{"to":"fixed"}', "--delay", "5m", "--reason", "typing error")
    shape = cli("job", ids[0], "--json").json
    assert (shape["state"], shape["args"]) == ("scheduled", {"to": "fixed"})
    cli("retry", ids[1], "--args", "[1]", code=2)
    cli("retry", ids[1], "--args", "{", code=2)
    assert "--args and --patch" in cli("retry", ids[1], "--args", "{}", "--patch", "{}", code=2).err


def test_retry_that_meets_a_unique_key_is_a_conflict(cli: Cli) -> None:
    from limpet.core.jobs.job import Unique

    holder = job(unique=Unique("k"))

    async def twice(store: Store) -> list[bytes]:
        dead = await kill(store, job(unique=Unique("k")))
        await put(store, holder, job("other", unique=Unique("k")))  # keys are scoped by task
        return dead

    (dead,) = cli.seed(twice)
    ran = cli("retry", id_text(dead), code=4)
    assert "unique held" in ran.out
    assert f"job {id_text(holder.id)} holds its unique key" in ran.err
    assert cli("retry", id_text(dead), "--json", code=4).json["holders"] == {id_text(dead): id_text(holder.id)}
    cli("dead", "retry", "state:dead", "--yes", code=4)
    cli("dead", "retry", "--all", "--yes", code=4)
    cli.seed(lambda store: kill(store, job()))
    assert cli("dead", "retry", "--all", "--yes", "--json").json["answers"] == {"retried": 1, "unique_held": 1}


def test_running_jobs_are_asked_to_stop(cli: Cli) -> None:
    async def running(store: Store) -> str:
        await put(store, job())
        (claimed,) = await claim(store)
        return id_text(claimed.id)

    id = cli.seed(running)
    assert "1 cancelling" in cli("cancel", id, "--reason", "stop").out
    assert "asked to stop" in cli("explain", id).out
    assert "1 cancelled" in cli("cancel", id, "--force").out
    assert states(cli) == {"cancelled": 1}


# -- dead letters


def test_the_dead_letter_desk(cli: Cli) -> None:
    ids = cli.seed(mixed)
    for words in ((), ("list",), ("error:Timeout",), ("list", "task:send", "--limit", "5")):
        listed = cli("dead", *words)
        assert ids[0] in listed.out
        assert ids[2] not in listed.out
    (cause,) = cli("dead", "causes", "--json").json["causes"]
    assert (cause["count"], cause["error"]) == (2, "TimeoutError")
    assert "Traceback" in cli("dead", "show", ids[0]).out
    assert cli("dead", "retry", ids[0], "--json").json["answers"] == {"retried": 1}
    assert cli("dead", "discard", "--all", "--yes", "--reason", "spam", "--json").json["done"] == 1
    assert cli("dead", "--json").json["jobs"] == []


def test_all_dead_jobs_only_when_someone_says_so(cli: Cli) -> None:
    cli.seed(mixed)
    assert "--all" in cli("dead", "discard", "--yes", code=2).err
    assert "--all" in cli("dead", "retry", code=2).err
    cli("dead", "retry", "state:ready", "--yes", code=2)
    cli("dead", "retry", "state:scheduled", "--yes", code=2)
    assert cli("dead", "discard", "error:Timeout", "--dry-run", "--json").json["matched"] == 2
    cli("dead", "list", "state:ready", code=2)
    assert states(cli)["dead"] == 2
    assert cli("dead", "retry", "--all", "--yes", "--json").json["done"] == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("jobs", "queu:mail"), "did you mean 'queue'"),
        (("jobs", "status:dead"), "did you mean 'state'"),
        (("jobs", "args.n>many"), "args.n:many"),
        (("jobs", "--since", "yesterday"), "write 1h (ago)"),
        (("jobs", "--since", "2026-01-01"), "no time zone"),
        (("audit", "--since", "1h", "--after", "1"), "one of them"),
        (("cancel", "state:ready", "beef", "--yes"), "quote a word"),
        (("jbos",), "did you mean 'jobs'"),
        (("beat",), "limpet schedules"),
        (("purge",), "limpet cancel"),
        (("dead", "cuases"), "did you mean 'causes'"),
        (("dead", "timeout"), "to search: limpet dead list timeout"),
        (("limits", "sett"), "did you mean 'set'"),
        (("jobs", "--limt", "3"), "--limit"),
        (("cancel",), "Missing argument"),
    ],
)
def test_a_wrong_word_is_exit_2_with_the_nearest(cli: Cli, words: tuple[str, ...], says: str) -> None:
    cli.seed(mixed)
    ran = cli(*words, code=2)
    assert ran.out == ""
    assert says in ran.err


def test_the_states_of_the_core_are_the_words_of_the_tables(cli: Cli) -> None:
    cli.seed(mixed)
    header = cli("queues").out.splitlines()[0].lower()
    assert all(state.value in header for state in State)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "--limit", "many"),
        ("jobs", "--nope"),
        ("jbos",),
        ("dead", "lits"),
        ("enqueue",),
        ("enqueue", "t", "[1]"),
        ("jobs", "queu:mail"),
        ("cancel", "state:ready"),
        ("job", "caf\udce9"),
        ("cancel", "state:ready", "--yes", "--reason", "caf\udce9"),
        ("pause", "default", "--reason", "caf\udce9"),
        ("jobs", "queue:caf\udce9"),
        ("pause",),
    ],
)
def test_an_error_for_programs_is_exactly_one_object(cli: Cli, words: tuple[str, ...]) -> None:
    for _ in range(4):
        cli("enqueue", "t")
    ran = cli(*words, "--json", code=None)
    assert ran.code != 0
    assert ran.out == ""
    error = msgspec.json.decode(ran.err)["error"]
    assert set(error) == {"code", "message", "fix"}
    assert error["code"]
    assert error["message"]


def test_the_next_page_of_lines_is_a_line(cli: Cli) -> None:
    for _ in range(3):
        cli("enqueue", "t")
    ran = cli("jobs", "--limit", "2", "--jsonl")
    assert len(ran.out.splitlines()) == 2
    assert msgspec.json.decode(ran.err)["note"].startswith("more: --cursor ")


def test_a_job_that_succeeded_shows_no_error(cli: Cli) -> None:
    async def second_time(store: Store) -> str:
        (id,) = await put(store, job())
        (first,) = await claim(store)
        failure = Failure("transient", "TimeoutError", "no answer", cause="t")
        await store.settle("w1", time.monotonic_ns(), [RetryAfter(id, first.token, failure, 0)])
        (again,) = await claim(store)
        await store.settle("w1", time.monotonic_ns(), [Succeed(id, again.token)])
        return id_text(id)

    id = cli.seed(second_time)
    assert "TimeoutError" not in cli("jobs").out
    shape = cli("job", id, "--json").json
    assert (shape["state"], shape["error"], shape["reason"], shape["cause"]) == ("succeeded", None, None, None)
    assert shape["history"][0]["error"] == "TimeoutError"
    shown = cli("job", id).out
    assert "reason" not in shown
    assert "TimeoutError: no answer" in shown
