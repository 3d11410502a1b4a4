"""A handler that blocks its loop is told of, with its job and its place; no busy machine or other job is blamed."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from limpet.core.jobs.blocked_loop import BlockedLoop, Blocks
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.tasks.task import TaskSpec
from limpet.runtime import blocked_loop
from limpet.runtime.attempt import Attempt
from limpet.runtime.blocked_loop import LONGEST_LOOK_S, LoopWatch, Place
from limpet.runtime.loop_monitor import LoopMonitor
from tests.runtime.running import Bench
from tests.runtime.test_log_writer import JOB

LOOK_S = 0.25


class Scene(LoopWatch):
    """A watch whose test says where the loop stands, when it turns, and what its thread has used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.ran_ms, self.waited_ms = 1_000.0, 0, 0
        monkeypatch.setattr(blocked_loop, "monotonic", lambda: self.now_s)
        self.loop = asyncio.new_event_loop()
        self.attempts = [made(self.loop, JOB), made(self.loop, JOB)]
        self.changes = 0
        self.stands: Attempt | None = None
        super().__init__(self.loop, self.change)

    def change(self) -> None:
        self.changes += 1

    def _place(self) -> Place | None:
        return None if self.stands is None else Place(self.stands, id(self.stands), sys._getframe())

    def _spent(self) -> tuple[int, int]:
        return self.ran_ms, self.waited_ms

    def looks(self, times: int = 1, every_s: float = LOOK_S) -> None:
        for _ in range(times):
            self.now_s += every_s
            self.look()

    def turn(self) -> None:
        """The loop does what it was asked to do."""
        self.loop.run_until_complete(asyncio.sleep(0))


def made(loop: asyncio.AbstractEventLoop, job: Claimed) -> Attempt:
    async def send() -> None: ...

    return Attempt(job, TaskSpec.declare(send, name=job.lane.task), None, loop)  # type: ignore[arg-type]  # no channel


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(monkeypatch)
    yield scene
    scene.loop.close()


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__["limpet"] for record in caplog.records]


def test_a_handler_that_stands_there_for_a_second_is_told_of_once_and_counted_when_it_ends(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stands = scene.attempts[0]
    scene.looks(4)
    assert not caplog.records
    scene.looks(9)
    (told,) = events(caplog)
    assert (told["event"], told["task"], told["job_id"], told["blocked_ms"]) == (
        "loop blocked",
        "shop.send",
        id_text(JOB.id),
        1_000,
    )
    assert "test_blocked_loop.py" in told["stack"]
    report = scene.report()
    assert report is not None
    assert report.now is not None
    assert (report.now.task, report.now.job_id, report.now.for_ms) == ("shop.send", id_text(JOB.id), 3_000)
    scene.turn()
    scene.stands = None
    scene.looks()
    assert [(each["event"], each["blocked_ms"]) for each in events(caplog)[1:]] == [("loop free again", 3_000)]
    ended = scene.report()
    assert ended is not None
    assert (ended.now, ended.tasks["shop.send"].count, ended.tasks["shop.send"].longest_ms) == (None, 1, 3_000)
    assert scene.changes == 2


def test_a_loop_that_turns_is_not_blocked_however_often_a_handler_is_met_there(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stands = scene.attempts[0]
    for _ in range(40):
        scene.looks()
        scene.turn()
    assert (caplog.records, scene.report()) == ([], None)


def test_many_short_handlers_in_one_long_turn_are_not_blamed(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(40):
        scene.stands = scene.attempts[number % 2]
        scene.looks()
    assert not caplog.records


def test_a_process_or_machine_that_stood_still_blames_no_handler(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stands = scene.attempts[0]
    scene.looks()
    scene.looks(every_s=3_600)  # SIGSTOP, a debugger, a laptop that slept
    scene.turn()
    scene.looks()
    assert not caplog.records
    assert LONGEST_LOOK_S < 1


def test_a_thread_that_waits_for_a_processor_does_not_block(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.stands = scene.attempts[0]
    for _ in range(16):  # a quarter of the time is the handler's own
        scene.waited_ms += 188
        scene.looks()
    assert not caplog.records
    scene.looks(4)
    assert [each["event"] for each in events(caplog)] == ["loop blocked"]


def test_a_call_that_held_the_interpreter_is_told_of_when_it_is_over(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stands = scene.attempts[0]
    scene.looks()
    scene.ran_ms += 3_000  # and no other thread ran meanwhile: the monitor did not, either
    scene.now_s += 3
    scene.turn()
    scene.stands = None
    scene.looks()
    assert [(each["event"], each["blocked_ms"]) for each in events(caplog)] == [("loop blocked", 3_000)]
    report = scene.report()
    assert report is not None
    assert report.tasks["shop.send"].count == 1


def until_told(caplog: pytest.LogCaptureFixture, event: str) -> None:
    """Block this thread until the event was logged."""
    deadline_s = time.monotonic() + 60
    while event not in [each.get("event") for each in events(caplog)] and time.monotonic() < deadline_s:
        time.sleep(0.01)


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_a_worker_finds_the_job_the_place_and_says_so_in_its_beats(
    bench: Bench, caplog: pytest.LogCaptureFixture, in_a_task: bool
) -> None:
    caplog.set_level(logging.WARNING, "limpet.worker")

    async def wait_badly() -> None:
        until_told(caplog, "loop blocked")

    async def hash_badly() -> None:
        await wait_badly()

    async def hash_beside() -> None:
        await asyncio.gather(wait_badly(), asyncio.sleep(0))

    id = await bench.put(bench.task(hash_beside if in_a_task else hash_badly, name="hash"))
    worker = bench.worker()
    await worker.run(until_empty=True)
    told = next(each for each in events(caplog) if each["event"] == "loop blocked")
    assert (told["task"], told["job_id"]) == ("hash", id_text(id))
    assert "in wait_badly" in told["stack"]
    assert in_a_task or "in hash_badly" in told["stack"]
    assert "in until_told" in told["stack"]
    assert "pipe.py" not in told["stack"]
    about = msgspec.json.decode(worker.info(), type=dict[str, Any])
    said = msgspec.convert(about.get("blocked_loop", {}), BlockedLoop)
    assert said.now is None or said.now.task == "hash"  # the last look may come before its end


async def test_code_of_no_job_is_told_of_only_in_a_process_of_ours(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(1_000))
    monkeypatch.setattr(blocked_loop, "monotonic", lambda: next(seconds) * LOOK_S)
    for all_code in (False, True):
        watch = LoopWatch(asyncio.get_running_loop(), all_code=all_code)
        looking = threading.Thread(target=lambda watch=watch: [watch.look() for _ in range(20)])
        looking.start()
        looking.join()  # this task blocks its loop
        assert [each["event"] for each in events(caplog)] == (["loop blocked"] if all_code else [])
    assert "task" not in events(caplog)[0]
    assert "in test_code_of_no_job" in events(caplog)[0]["stack"]
    assert "asyncio" not in events(caplog)[0]["stack"]


def test_counts_keep_the_longest() -> None:
    blocks = Blocks().one_more(3_000, 10).one_more(1_000, 20)
    assert blocks == Blocks(2, 3_000, 20)


def test_a_look_that_fails_does_not_end_the_monitor() -> None:
    looks = threading.Semaphore(0)

    class Broken(LoopWatch):
        def look(self) -> None:
            looks.release()
            raise RuntimeError("a handler has replaced something")

    loop = asyncio.new_event_loop()
    with LoopMonitor(None, 15_000).looks_through(Broken(loop)):
        assert all(looks.acquire(timeout=60) for _ in range(2))
    loop.close()
