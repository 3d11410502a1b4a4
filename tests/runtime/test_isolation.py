"""Jobs in processes of their own: isolated, told, killed, reused; and suspects in a fresh one."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from limpet.core.endings.refusal import code_of
from limpet.core.endings.transition import Lose
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Note
from limpet.core.jobs.state import State
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import instant_ms
from limpet.runtime import Parts, Worker, WorkerPlan, WorkReport, isolation
from limpet.runtime.isolated_child import PROGRESS_S
from limpet.runtime.process_group import gone, runs
from limpet.runtime.settler import Notebook
from limpet.stores.asking import attempts_of
from limpet.stores.sqlite import SqliteStore
from tests.runtime.isolated_jobs import TURNS, app, number, pid
from tests.runtime.running import Bench

REF = "tests.runtime.isolated_jobs:app"


@pytest.fixture
def processes() -> Bench:
    """A bench in memory: the children never open the store."""
    bench = Bench(SqliteStore(None))
    bench.tasks = dict(app.tasks)
    return bench


async def drain(bench: Bench, **settings: object) -> WorkReport:
    return await bench.drain({"job_processes": 2, **settings}, app_ref=REF, resources=[number])


async def appears(path: Path) -> None:
    """Wait for the file by which another process says that it has come so far."""

    def wait() -> None:
        while not path.exists():
            time.sleep(0.005)  # another process can signal only through the file system

    await asyncio.to_thread(wait)


async def test_a_process_job_runs_elsewhere_with_resources_of_its_own_and_the_process_is_reused(
    processes: Bench,
) -> None:
    spec = processes.tasks["pid"]
    ids = [await processes.put(spec) for _ in range(3)]
    await drain(processes, job_processes=1)
    pids = [msgspec.json.decode((await processes.view(id)).result or b"") for id in ids]
    assert pids[0] == pids[1] == pids[2]
    assert pids[0][0] == pids[0][1] != os.getpid()
    await processes.store.close()


async def test_as_many_process_jobs_run_at_once_as_were_asked_for(processes: Bench, tmp_path: Path) -> None:
    """None of the places is kept for urgent jobs, though a task is urgent."""
    markers = [tmp_path / name for name in ("one", "two")]

    def email() -> None: ...

    processes.task(email, priority="critical", executor="process")
    for mine, other in (markers, markers[::-1]):
        await processes.put(processes.tasks["waits_for_all"], {"mine": str(mine), "others": [str(other)]})
    report = await drain(processes)
    assert report.succeeded == 2  # each waited until the other had started
    await processes.store.close()


async def test_an_async_function_may_run_in_a_process(processes: Bench) -> None:
    id = await processes.put(processes.tasks["async_pid"])
    await drain(processes)
    assert int((await processes.view(id)).result or b"0") != os.getpid()
    await processes.store.close()


async def test_an_error_inside_keeps_its_type_and_traceback(processes: Bench) -> None:
    id = await processes.put(processes.tasks["fails"])
    await drain(processes)
    (attempt,) = await attempts_of(processes.store, id)
    assert (attempt.type, attempt.message) == ("ConnectionError", "from inside")
    first = next(line for line in attempt.traceback.splitlines() if line.startswith("  File "))
    assert "isolated_jobs" in first, attempt.traceback
    await processes.store.close()


Times = Callable[[float], dict[str, float | None]]


async def out_of_time(
    bench: Bench, task: str, times: Times, marker: Path, **values: object
) -> tuple[bytes, WorkReport]:
    """Run a job that has begun and stays for ever until its time is over: a machine that is too slow gets more time."""
    for enough_s in (0.2, 1, 5, 25):
        spec = bench.task(app.tasks[task].fn, executor="process", **times(enough_s))
        id = await bench.put(spec, {**values, "marker": str(marker)})
        report = await drain(bench, job_processes=1)
        if has_begun(marker):
            return id, report
    raise AssertionError("it never begins")


def has_begun(marker: Path) -> bool:
    return marker.exists()


async def test_a_process_job_that_does_not_fit_is_handed_on_too(processes: Bench) -> None:
    def spins(marker: int) -> None: ...

    other = {"spins": TaskSpec.declare(spins, name="spins")}
    plan = WorkerPlan(store=processes.store, parts=Parts(tasks=other))
    await processes.store.beat(Beat(plan.session, 60_000, plan.serves, Worker(plan).info()))
    id = await processes.put(other["spins"], {"marker": 5}, queue=app.tasks["spins"].queue)
    report = await drain(processes)
    assert (report.refused, report.dead) == (1, 0)
    assert (await processes.view(id)).lane.needs == (code_of({"spins": other["spins"].signature.fingerprint}),)
    assert [each.outcome for each in await attempts_of(processes.store, id)] == ["refused"]


async def test_a_soft_timeout_is_raised_inside_a_sync_process_job(processes: Bench, tmp_path: Path) -> None:
    id, _ = await out_of_time(processes, "spins", lambda s: {"timeout": s}, tmp_path / "x")
    assert (await processes.view(id)).result == b'"told"'
    await processes.store.close()


async def test_a_hard_timeout_kills_the_process(processes: Bench, tmp_path: Path) -> None:
    id, report = await out_of_time(
        processes, "ignores", lambda s: {"timeout": s, "hard_timeout": s + 0.1}, tmp_path / "x"
    )
    assert report.dead == 1
    (attempt,) = await attempts_of(processes.store, id)
    assert attempt.kind == "timeout"
    assert "hard timeout" in attempt.message
    await processes.store.close()


async def test_a_cancelled_process_job_sees_it(processes: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    id = await processes.put(processes.tasks["polite"], {"marker": str(marker)})
    stop = asyncio.Event()
    worker = processes.worker(app_ref=REF, resources=[number])
    work = asyncio.create_task(worker.run(stop))
    await appears(marker)
    await processes.store.cancel([id], "why")
    view = await processes.store.watch(id, 60_000)
    stop.set()
    await work
    assert view is not None
    assert view.result == b'"stopped politely"'
    await processes.store.close()


async def test_a_process_job_that_outlives_the_grace_is_killed_and_handed_back(
    processes: Bench, tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    id = await processes.put(processes.tasks["ignores"], {"marker": str(marker)})
    stop = asyncio.Event()
    worker = processes.worker({"grace_ms": 10}, app_ref=REF, resources=[number])
    work = asyncio.create_task(worker.run(stop))
    await appears(marker)
    stop.set()
    report = await work
    assert report.released == 1
    assert (await processes.view(id)).state is State.ready
    await processes.store.close()


async def test_a_process_job_knows_what_it_is(processes: Bench) -> None:
    id = await processes.put(processes.tasks["knows"], meta={"request": "r1"})
    await drain(processes)
    view = await processes.view(id)
    found = msgspec.json.decode(view.result or b"null")
    assert found[:-1] == [2, True, {}, "low", {"request": "r1"}]
    assert instant_ms(datetime.fromisoformat(found[-1])) == view.enqueued_at_ms
    await processes.store.close()


async def test_progress_and_checkpoints_cross_the_pipe(processes: Bench) -> None:
    id = await processes.put(processes.tasks["writes"])
    await drain(processes)
    assert (await processes.view(id)).result == b'{"done":1}'
    await processes.store.close()


async def test_progress_of_a_tight_loop_is_few_messages_and_seen_while_it_runs(
    processes: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No regular beat comes while it runs."""
    marker = tmp_path / "seen"
    heard: list[bytes] = []
    add = Notebook.add

    def counted(notebook: Notebook, id: bytes, token: int, note: Note, *, soon: bool = False) -> None:
        heard.append(note.body)
        add(notebook, id, token, note, soon=soon)

    monkeypatch.setattr(Notebook, "add", counted)
    id = await processes.put(processes.tasks["reports"], {"marker": str(marker)})
    began_s = time.monotonic()
    work = asyncio.create_task(drain(processes, beat_ms=600_000, ttl_ms=1_800_000))
    async with asyncio.timeout(60):
        while True:
            if any(msgspec.json.decode(note.body)["done"] == TURNS for note in (await processes.view(id)).notes):
                break
            await asyncio.sleep(0.01)
    took_s = time.monotonic() - began_s
    marker.touch()
    assert (await work).succeeded == 1
    assert len(heard) <= took_s / PROGRESS_S + 3
    (note,) = (await processes.view(id)).notes
    assert msgspec.json.decode(note.body)["message"] == "the last word"
    await processes.store.close()


async def test_a_crash_costs_no_attempt_and_the_job_runs_again(processes: Bench, tmp_path: Path) -> None:
    id = await processes.put(processes.tasks["crashes_once"], {"marker": str(tmp_path / "crashed")})
    report = await drain(processes)
    assert (report.lost, report.succeeded) == (1, 1)
    view = await processes.view(id)
    assert (view.state, view.attempt, view.lost) == (State.succeeded, 1, 1)
    await processes.store.close()


async def test_a_poison_job_is_dead_at_its_first_proven_crash(processes: Bench) -> None:
    id = await processes.put(processes.tasks["crashes"])
    report = await drain(processes)
    assert report.lost == 3
    view = await processes.view(id)
    assert (view.state, view.cause) == (State.dead, "poison")
    await processes.store.close()


@pytest.mark.parametrize("how", ["exits", "is killed"])
async def test_a_helper_that_outlives_its_job_keeps_neither_job_nor_place(
    processes: Bench, tmp_path: Path, how: str
) -> None:
    """The helper holds the pipe open, so the end of that says nothing."""
    marker = tmp_path / "helper"
    id = await processes.put(processes.tasks["forks"], {"how": how, "marker": str(marker)})
    after = await processes.put(processes.tasks["pid"])
    report = await drain(processes, job_processes=1)
    assert (report.lost, report.succeeded) == (1, 1)
    assert (await processes.view(id)).state is State.dead
    assert (await processes.view(after)).state is State.succeeded
    helper, group = map(int, marker.read_text().split())
    assert group != helper
    assert not runs(group)
    await processes.store.close()


async def test_a_hard_timeout_kills_what_the_job_has_started_too(processes: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "helper"
    id, report = await out_of_time(
        processes, "forks", lambda s: {"timeout": None, "hard_timeout": s}, marker, how="hangs"
    )
    assert report.dead == 1
    (attempt,) = await attempts_of(processes.store, id)
    assert "hard timeout" in attempt.message
    assert not runs(int(marker.read_text().split()[1]))
    await processes.store.close()


async def test_a_helper_may_work_on_after_its_job_and_ends_with_the_worker(processes: Bench, tmp_path: Path) -> None:
    marker = tmp_path / "helper"
    await processes.put(processes.tasks["forks"], {"how": "returns", "marker": str(marker)})
    report = await drain(processes, job_processes=1)
    assert report.succeeded == 1
    assert not runs(int(marker.read_text().split()[1]))
    await processes.store.close()


async def test_a_process_that_does_not_end_by_itself_is_killed(
    processes: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may leave a thread behind that holds up the exit of its process for ever."""
    monkeypatch.setattr(isolation, "END_S", 0.1)
    id = await processes.put(processes.tasks["leaves_a_thread"])
    await drain(processes, job_processes=1)
    assert (await processes.view(id)).state is State.succeeded
    await processes.store.close()


async def test_what_a_left_thread_reports_is_not_taken_for_the_next_job(processes: Bench) -> None:
    first = await processes.put(processes.tasks["leaves_a_reporter"])
    second = await processes.put(processes.tasks["follows_a_reporter"])
    assert (await drain(processes, job_processes=1)).succeeded == 2
    assert (await processes.view(first)).notes == ()
    (note,) = (await processes.view(second)).notes
    assert msgspec.json.decode(note.body)["done"] == 1
    await processes.store.close()


async def test_a_process_that_died_between_two_jobs_costs_neither(processes: Bench) -> None:
    first = await processes.put(processes.tasks["pid"])
    stop = asyncio.Event()
    work = asyncio.create_task(processes.worker({"job_processes": 1}, app_ref=REF, resources=[number]).run(stop))
    await processes.until([first], State.succeeded)
    died = msgspec.json.decode((await processes.view(first)).result or b"")[0]
    os.kill(died, signal.SIGKILL)
    assert await gone(died, 60)
    second = await processes.put(processes.tasks["pid"])
    await processes.until([second], State.succeeded)
    stop.set()
    assert (await work).lost == 0
    await processes.store.close()


async def test_where_processes_have_no_descriptor_a_thread_waits_for_them(
    processes: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    marker = tmp_path / "helper"
    await processes.put(processes.tasks["forks"], {"how": "exits", "marker": str(marker)})
    assert (await drain(processes, job_processes=1)).lost == 1
    assert not runs(int(marker.read_text().split()[1]))
    await processes.store.close()


async def test_an_async_suspect_runs_alone_in_a_fresh_process(processes: Bench) -> None:
    """Its function would kill this very process if it were run here."""
    id = await processes.put(processes.tasks["crashes_async"])
    for _ in range(2):
        (job,) = await processes.claim_as("earlier")
        await processes.store.settle("earlier", job.token, [Lose(job.id, job.token, reason="a crash")])
        await processes.store.leave("earlier")
    report = await drain(processes)
    assert report.lost == 1
    assert (await processes.view(id)).state is State.dead
    await processes.store.close()


@pytest.mark.parametrize("why", ["could not load", "could not be started"])
async def test_a_job_that_gets_no_process_is_lost_and_its_neighbours_go_on(
    processes: Bench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """It ended the worker, which handed it back uncounted: every worker after it ended in the same way."""

    async def innocent() -> str:
        return "done"

    if why == "could not be started":
        monkeypatch.setattr("limpet.runtime.process_group.subprocess.Popen", no_files_left)
    spec = TaskSpec.declare(pid, name="pid", executor="process", retry=None, max_lost=1)
    processes.tasks["pid"] = spec
    id, neighbour = await processes.put(spec), await processes.put(processes.task(innocent))
    app_ref = "tests.nowhere:app" if why == "could not load" else REF
    report = await processes.drain(app_ref=app_ref, resources=[number])
    assert (report.lost, report.succeeded) == (1, 1)
    view = await processes.view(id)
    assert view.state is State.dead
    assert why in view.reason
    assert (await processes.view(neighbour)).state is State.succeeded
    await processes.store.close()


def no_files_left(*args: object, **options: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_a_process_that_writes_into_the_workers_socket_is_its_own_loss(processes: Bench) -> None:
    id = await processes.put(processes.tasks["babbles"])
    report = await drain(processes)
    assert (report.lost, (await processes.view(id)).state) == (1, State.dead)
    await processes.store.close()


async def test_a_process_starts_though_handlers_have_filled_the_pool_of_the_loop(processes: Bench) -> None:
    let_go = threading.Event()
    blocked = [asyncio.create_task(asyncio.to_thread(let_go.wait, 60)) for _ in range(64)]
    id = await processes.put(processes.tasks["async_pid"])
    await asyncio.wait_for(drain(processes), 60)  # and the worker ends
    assert (await processes.view(id)).state is State.succeeded
    let_go.set()
    await asyncio.gather(*blocked)
    await processes.store.close()


async def test_a_suspect_that_cannot_be_isolated_runs_here(processes: Bench) -> None:
    async def innocent() -> int:
        return os.getpid()

    id = await processes.put(processes.task(innocent))
    for _ in range(2):
        (job,) = await processes.claim_as("earlier")
        await processes.store.settle("earlier", job.token, [Lose(job.id, job.token, reason="a crash")])
        await processes.store.leave("earlier")
    await processes.drain(app_ref="tests.nowhere:app", resources=[number])
    assert int((await processes.view(id)).result or b"0") == os.getpid()
    await processes.store.close()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_process_job_has_durable_steps(processes: Bench, tmp_path: Path, dies: bool) -> None:
    id = await processes.put(processes.tasks["pays"], {"folder": str(tmp_path), "dies": dies})
    report = await drain(processes, linger_ms=10_000)
    assert (report.suspended, report.lost, report.succeeded) == (1, int(dies), 1)
    keys = msgspec.json.decode((await processes.view(id)).result or b"")
    assert keys == [f"{id_text(id)}:{name}" for name in ("plain", "async", "last")]


async def test_an_async_process_job_has_durable_steps(processes: Bench, tmp_path: Path) -> None:
    id = await processes.put(processes.tasks["pays_async"], {"folder": str(tmp_path)})
    await drain(processes, linger_ms=10_000)
    keys = msgspec.json.decode((await processes.view(id)).result or b"")
    assert keys == [f"{id_text(id)}:{name}" for name in ("a", "b")]
