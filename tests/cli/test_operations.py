"""Operations from the command line: throttled replays, samples, the background, and a Ctrl-C that pauses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from limpet.core.endings.transition import Bury, Failure
from limpet.core.jobs.state import State
from limpet.ops.operation_runner import OperationRunner
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, kill, put

PATIENCE_S = 60


def dead(cli: Cli, count: int, **more: Any) -> list[bytes]:
    """Dead jobs in the store."""
    return cli.seed(lambda store: kill(store, *(job(**more) for _ in range(count))))


async def bury(store: Store) -> None:
    """Whatever is ready dies."""
    for claimed in await claim(store):
        failure = Failure("permanent", "ValueError", "bad address", cause="c")
        await store.settle("w1", time.monotonic_ns(), [Bury(claimed.id, claimed.token, failure)])


def test_a_throttled_retry_is_an_operation_and_ends_here(cli: Cli) -> None:
    dead(cli, 3)
    ran = cli("retry", "state:dead", "--per-second", "1000", "--yes", "--reason", "back")
    assert "operation" in ran.err
    assert "Ctrl-C pauses it" in ran.err
    assert ": done" in ran.out
    assert "retry      state:dead" in ran.out
    assert "3 of 3" in ran.out
    assert "3 retried" in ran.out
    (one,) = cli("operations", "--json").json["operations"]
    assert (one["state"], one["matched"], one["reason"], one["per_second"]) == ("done", 3, "back", 1000.0)
    assert one["id"] in cli("operations").out
    assert cli("operations", "--open", "--json").json == {"operations": []}


def test_a_sample_waits_for_a_person(cli: Cli) -> None:
    dead(cli, 4)
    ran = cli("dead", "retry", "--all", "--sample", "2", "--yes")
    assert "paused (the sample of 2 is done: see how its jobs end, then continue)" in ran.out
    assert "2 unfinished" in ran.out
    id = cli("operations", "--json").json["operations"][0]["id"]
    assert f"continue: limpet operations continue {id}" in ran.err
    cli.seed(bury)
    assert "2 dead again" in cli("operations", "show", id[-6:]).out
    more = cli("operations", "continue", id, "--json")
    assert (more.json["state"], more.json["answers"]) == ("done", {"retried": 4})
    assert more.json["sample"]["dead"] == 2
    assert more.err == ""


def test_in_the_background_it_waits_for_a_process(cli: Cli) -> None:
    dead(cli, 2)
    started = cli("retry", "state:dead", "--background", "--yes", "--json").json
    assert (started["state"], started["done"]) == ("waiting", 0)
    assert f"limpet operations run {started['id']}" in cli("operations", "show", started["id"]).err
    assert cli("operations", "run", started["id"], "--json").json["state"] == "done"
    assert cli("operations", "run", started["id"], "--json").json["answers"] == {"retried": 2}
    assert cli("operations", "cancel", started["id"], code=4).err.startswith("limpet: operation")


def test_a_dry_run_and_a_refused_question_store_nothing(cli: Cli) -> None:
    dead(cli, 2)
    assert "would retry 2 jobs" in cli("retry", "state:dead", "--sample", "1", "--dry-run").out
    assert "limpet: retry 2 jobs? needs a yes" in cli("retry", "state:dead", "--sample", "1", code=2).err
    assert cli("retry", "queue:none", "--sample", "1", "--dry-run", "--json").json["matched"] == 0
    assert cli("operations", "--json").json == {"operations": []}


def test_every_bulk_command_can_be_careful(cli: Cli) -> None:
    dead(cli, 1, queue="gone")
    cli.seed(lambda store: put(store, job(queue="waits")))
    assert "1 discarded" in cli("dead", "discard", "queue:gone", "--per-second", "5", "--yes").out
    assert "1 cancelled" in cli("cancel", "queue:waits", "--per-second", "5", "--yes").out
    assert "1 rerun" in cli("rerun", "queue:waits", "--stop-after", "1", "--yes").out
    assert "force true" in cli("cancel", "queue:waits", "--force", "--background", "--yes").out


def test_jobs_that_could_not_be_changed_are_an_exit_code_and_are_named(cli: Cli) -> None:
    (id,) = cli.seed(lambda store: put(store, job()))
    text = id.hex()[-8:]
    ran = cli("retry", text, "--per-second", "5", code=1)
    assert "1 not dead" in ran.out
    assert f"{text} not dead" in ran.out


def test_pause_and_cancel_say_what_it_is_then(cli: Cli) -> None:
    dead(cli, 1)
    id = cli("retry", "state:dead", "--background", "--yes", "--json").json["id"]
    assert "paused (lunch)" in cli("operations", "pause", id, "--reason", "lunch").out
    assert "waiting" in cli("operations", "continue", id, "--background").out
    assert "cancelled (enough)" in cli("operations", "cancel", id, "--reason", "enough").out
    assert cli("operations", "show", "ffff", code=3).err.startswith("limpet: there is no operation 'ffff'")
    kinds = [json.loads(line)["kind"] for line in cli("audit", "--jsonl").out.splitlines()]
    assert kinds == ["operation.start", "operation.pause", "operation.continue", "operation.cancel"]


def until(cli: Cli, is_so: Any) -> Any:
    """The only operation, once it is so."""
    for _ in range(PATIENCE_S * 20):
        found = cli("operations", "--json").json["operations"]
        if found and is_so(found[0]):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("the operation is not so")


def test_ctrl_c_pauses_it_and_says_how_it_is_continued(cli: Cli) -> None:
    dead(cli, 3)
    words = ["retry", "state:dead", "--per-second", "0.01", "--yes"]
    with subprocess.Popen([sys.executable, "-m", "limpet.cli", *words], stderr=subprocess.PIPE, text=True) as process:
        one = until(cli, lambda one: one["done"] == 1)
        assert one["state"] == "running"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert f"continue: limpet operations continue {one['id']}" in said
    left = cli("operations", "show", one["id"], "--json").json
    assert (left["state"], left["pause"], left["why"], left["runner"]) == ("paused", "asked", "Ctrl-C", None)


def test_operations_run_takes_what_waits_until_ctrl_c(cli: Cli) -> None:
    dead(cli, 2)
    cli("retry", "state:dead", "--background", "--yes")
    with subprocess.Popen([sys.executable, "-m", "limpet.cli", "operations", "run"], env=os.environ) as process:
        until(cli, lambda one: one["state"] == "done")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0


def test_what_a_server_has_begun_and_let_go_of_is_ended_from_here(cli: Cli) -> None:
    dead(cli, 3)
    started = cli("retry", "state:dead", "--per-second", "0.01", "--background", "--yes", "--json").json

    async def begun(store: Store) -> None:
        """A server takes it, and lets it go again."""
        runner = OperationRunner(store, every_s=0.01)
        runner.start()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(0.01)
                if (await store.count()).total(State.dead) < 3:
                    break
        await runner.stop()

    cli.seed(begun)
    assert until(cli, lambda one: one["done"] == 1)["state"] == "waiting"
    assert cli("operations", "cancel", started["id"], "--json").json["done"] == 1
