"""The commands about tasks and rates, with what live workers say of the last minute."""

from __future__ import annotations

import sys

import msgspec
import pytest

from limpet.client.registry import publish
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.minute import Minute, Tally
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.minute_counter import AttemptCounter, Reading
from limpet.runtime.rollup_writer import RollupWriter
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, put


async def send(to: str, count: int = 1) -> None: ...


async def work_under_way(store: Store) -> None:
    spec = TaskSpec.declare(
        send,
        name="mail.send",
        queue="mail",
        priority="high",
        timeout=30,
        retry=3,
        limits=[Limit("smtp", concurrency=20)],
        breaker=Breaker(name="smtp"),
    )
    await publish(store, [spec])
    await put(store, job("mail.send"), job("mail.send"), job("unheard.of"))
    said = Minute(60.0, {"mail.send": Tally({"succeeded": 198, "retried": 2}, {40: 200}, {24: 200})})
    info = msgspec.json.encode({"host": "h", "last_minute": said})
    await store.beat(Beat("w1", 60_000, Serves(("mail",), ("mail.send",)), info))


def test_tasks_are_listed_with_rates_failures_and_workers(cli: Cli) -> None:
    cli.seed(work_under_way)
    head, known, unknown = cli("tasks").out.splitlines()
    assert " ".join(head.split()) == "TASK QUEUE WAITING RUNNING DEAD DONE/MIN FAILED P95 WORKERS OPTIONS"
    row = ["mail.send", "mail", "2", "0", "0", "198", "1%", "1s", "1"]
    assert known.split()[:9] == row
    assert "  high (3); 3 attempts; timeout 30s; limit smtp 20 at once; " in known
    assert unknown.split()[:2] == ["unheard.of", "1"]
    assert unknown.endswith("no code has declared it yet")
    first, second = (msgspec.json.decode(line) for line in cli("tasks", "--jsonl").out.splitlines())
    assert (first["priority"], first["breaker"], first["last_minute"]["failed_share"]) == (3, "smtp", 0.01)
    assert (second["task"], second["declared"], second["states"]["ready"]) == ("unheard.of", False, 1)


def test_one_task_is_shown_with_all_its_options(cli: Cli) -> None:
    cli.seed(work_under_way)
    out = cli("tasks", "mail.send").out
    for line in (
        "  jobs              2 ready\n",
        "  last minute       198 finished; 1% of attempts failed; run p50 880ms, p95 1s; wait p50 3ms, p95 4ms\n",
        "  workers           1 live one knows it\n",
        "  priority          high (3)\n",
        "  timeout           30s\n",
        '  arguments         {"count":{"type":"integer"},"to":{"type":"string"}}\n',
    ):
        assert line in out, out
    options = cli("tasks", "mail.send", "--json").json["options"]
    assert (options["timeout"], options["limits"]) == (30, [{"key": "smtp", "concurrency": 20}])
    assert "no code has declared it yet" in cli("tasks", "unheard.of").out
    assert "did you mean 'mail.send'" in cli("tasks", "mail.sned", code=3).err


def test_stats_name_the_window_of_a_rate(cli: Cli) -> None:
    cli.seed(work_under_way)
    assert cli("stats").out.splitlines()[-1].startswith("last minute, live workers: 198 finished; 1% of attempts")
    shape = cli("stats", "--json").json
    assert (shape["ready"], shape["last_minute"]["finished"], "per_second" in shape) == (3, 198, False)
    first, second = cli("stats", "--watch", "100ms", "--looks", "2").out.strip().split("\n\n")
    assert "a second" not in first
    assert second.splitlines()[-1] == "a second, since the look before: no change"
    before, after = cli("stats", "--watch", "100ms", "--looks", "2", "--jsonl").out.splitlines()
    assert "per_second" not in msgspec.json.decode(before)
    assert msgspec.json.decode(after)["per_second"]["enqueued"] == 0


def test_stats_break_between_words_on_a_screen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.seed(work_under_way)
    plain = cli("stats").out
    monkeypatch.setenv("COLUMNS", "40")
    with monkeypatch.context() as screen:
        screen.setattr(sys.stdout, "isatty", lambda: True)
        lines = cli("stats").out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == " ".join(plain.split())


def test_workers_do_not_repeat_the_histograms(cli: Cli) -> None:
    cli.seed(work_under_way)
    assert cli("workers", "--json").json["workers"][0]["info"] == {"host": "h"}


async def a_quarter_of_an_hour(store: Store) -> None:
    """Two tasks in two queues; one of them fails."""
    await put(store, job("mail.send"), job("pay.charge", queue="pay"))
    counter = AttemptCounter()
    for one in await claim(store):
        for _ in range(90):
            counter.ended(one, "succeeded", 0.05)
        counter.ended(one, "dead" if one.lane.queue == "pay" else "retried", 2.0)
    await RollupWriter(store, "w1", Reading(counter)).write()


def test_stats_and_tasks_show_a_longer_time(cli: Cli) -> None:
    cli.seed(a_quarter_of_an_hour)
    head, whole, *queues = (line.split() for line in cli("stats", "--last", "15m").out.splitlines())
    assert head[:5] == ["QUEUE", "DONE/MIN", "FAILED", "P50", "P95"]
    assert (whole[0], whole[2], [line[0] for line in queues]) == ("all", "1%", ["mail", "pay"])
    by_task = cli("stats", "--last", "15m", "--by", "task", "--queue", "pay").out.splitlines()
    assert [line.split()[0] for line in by_task] == ["TASK", "all", "pay.charge"]
    assert by_task[2].endswith("90 succeeded, 1 dead")
    steps = cli("stats", "--last", "15m", "--step", "5m", "--task", "mail.send").out.splitlines()
    assert len(steps) in (4, 5), "a line for each step"
    shape = cli("stats", "--last", "15m", "--by", "queue", "--json").json
    assert shape["total"]["whole"]["ended"] == {"succeeded": 180, "retried": 1, "dead": 1}
    assert sum(shape["total"]["ended"]["succeeded"]) == 180
    first = msgspec.json.decode(cli("tasks", "--last", "1h", "--jsonl").out.splitlines()[0])
    assert first["over_time"]["ended"] == {"succeeded": 90, "retried": 1}
    assert "  last 1h           " in cli("tasks", "mail.send", "--last", "1h").out
    assert "add --last 1h" in cli("stats", "--by", "task", code=2).err
    assert "35 days" in cli("stats", "--last", "60d", code=2).err
