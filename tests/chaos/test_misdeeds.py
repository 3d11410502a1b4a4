"""A handler harms the process it runs in: that is its own loss, and never the end of the command.

After each misdeed the same must be true: the command is there and stops as asked, every neighbour has succeeded, the
culprit has ended after a few runs, and every job is accounted for.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import psutil
import pytest

from limpet.core.jobs.state import FINISHED, State
from tests.chaos import misdeed_jobs
from tests.chaos.conftest import ALL
from tests.chaos.field import Field, WorkerProcess, starts_per_job
from tests.size import in_matrix

pytestmark = pytest.mark.timeout(900)  # a child and a cell for each loss, each of which imports the app
NEIGHBOURS: Final = 2  # of each kind, at its side and after it
MOST_RUNS: Final = 6  # two losses and one proof, or two attempts after two losses
LEASE_MS: Final = 1_200
CALM_MS: Final = 15_000  # where no lease may be lost, not on a busy machine either
# What is known to be out of reach, or mended on the spot: no process ends of it, and no neighbour runs twice.
HARMLESS: Final = {
    "cancels_all_tasks",
    "cancels_all_other_tasks",
    "stops_the_loop",
    "exits_in_a_callback",
    "exits_in_a_task",
    "interrupts_in_a_callback",
    "sets_a_task_factory",
    "closes_its_standard_files",
    "breaks_logging",
    "forks_and_returns",
    "forks_and_waits",
    "forks_and_returns_in_a_thread",
    "forks_in_a_callback",
    "forks_in_a_function_of_a_callback",
    "ignores_all_signals",
    "blocks_all_signals",
    "clears_the_environment",
    "closes_the_store",
}
# One for each of the ways in which a worker defends itself; the others are variations.
TELLING: Final = (
    "cancels_all_tasks",
    "cancels_every_task_in_memory",
    "stops_the_loop_and_waits",
    "closes_all_files",
    "forks_and_waits",
    "terminates_itself_and_waits",
    "stops_itself",
    "ends_its_process_as_if_cut_off",
    "ends_the_heartbeat",
    "breaks_asyncio",
)
REST: Final = sorted({*misdeed_jobs.IN_LOOP, *misdeed_jobs.IN_THREAD} - {*TELLING})


@pytest.mark.parametrize("misdeed", [*TELLING, *in_matrix("variations of those of every day", *REST)])
@pytest.mark.parametrize("url", ["sqlite", *in_matrix("it happens in the worker alone", *ALL[1:])], indirect=True)
async def test_a_misdeed_is_the_loss_of_its_own_job(field: Field, misdeed: str) -> None:
    await commit(field, misdeed)


@pytest.mark.parametrize("url", ALL[1:], indirect=True)
async def test_a_handler_that_cancels_all_tasks_does_not_reach_those_of_a_store(field: Field) -> None:
    await commit(field, "cancels_all_tasks")


IN_THE_LOOP: Final = ("cancels_all_tasks", "stops_the_loop_and_waits")
OF_A_LOOP: Final = [name for name in sorted(misdeed_jobs.IN_LOOP) if name not in IN_THE_LOOP]


@pytest.mark.parametrize("misdeed", [*IN_THE_LOOP, *in_matrix("variations of those of every day", *OF_A_LOOP)])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_misdeed_on_the_loop_of_the_standard_library(field: Field, misdeed: str, tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('not today')")
    field.first_on_path = (str(tmp_path),)
    await commit(field, misdeed)


async def commit(field: Field, misdeed: str) -> None:
    """Let a worker meet a misdeed among innocent jobs, and look at what is left."""
    lease_ms = CALM_MS if misdeed in HARMLESS else LEASE_MS
    worker = field.start(
        app="tests.chaos.misdeed_jobs:app", concurrency=8, ttl_ms=lease_ms, silent_ms=8_000, cleanup_ms=500
    )
    culprit, *innocent = await put_all(field, misdeed)
    await field.until("the culprit has started", lambda: bool(field.trace("culprit")))
    innocent += await neighbours(field)
    await field.finished(len(innocent) + 1)
    innocent += await neighbours(field)
    counts = await field.finished(len(innocent) + 1)

    assert worker.process.poll() is None, "a job has ended the command"
    assert {view.state for view in await field.views(innocent)} == {State.succeeded}
    (found,) = await field.views([culprit])
    assert found.state in FINISHED
    assert counts.enqueued == len(innocent) + 1 == counts.succeeded + counts.total(State.dead)
    assert len(field.trace("culprit")) <= MOST_RUNS
    runs = starts_per_job(field.trace("neighbour"))
    assert max(runs.values()) <= MOST_RUNS
    if misdeed in HARMLESS:
        assert counts.lost == 0, "a misdeed out of reach has cost somebody a run"
        assert len({line[4] for line in field.trace("neighbour")}) == 1, "a process has ended of it"
    await ended(worker)
    await field.until("no process is left behind", lambda: not left_behind(field))


def left_behind(field: Field) -> list[int]:
    """The processes of this field that live, whoever started them; each leaves its traces in the same file."""
    return [process.pid for process in psutil.process_iter() if str(field.trace_file) in _environment(process)]


def _environment(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else list(process.environ().values())
    except psutil.Error:
        return []


async def put_all(field: Field, misdeed: str) -> list[bytes]:
    task = "culprit" if misdeed in misdeed_jobs.IN_LOOP else "culprit_in_thread"
    beside = await neighbours(field)
    return [*await field.put(task, {"name": misdeed}, app=misdeed_jobs.app), *beside]


async def neighbours(field: Field) -> list[bytes]:
    ids: list[bytes] = []
    for task in ("neighbour", "neighbour_in_thread"):
        ids += await field.put(task, {"ms": 300}, NEIGHBOURS, app=misdeed_jobs.app)
    return ids


async def ended(worker: WorkerProcess) -> None:
    """Whatever a handler has left behind, the command stops as asked."""
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
