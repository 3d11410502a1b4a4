"""What a supervisor sees of a child from outside, and what it makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from limpet.core.jobs.lease import Serves
from limpet.runtime import child_watch as watching
from limpet.runtime.child_messages import Ready
from limpet.runtime.child_watch import ChildWatch, Seen
from limpet.runtime.loop_monitor import LoopMonitor
from limpet.runtime.process_state import ProcessState, _from_ps, _seconds, process_state
from limpet.runtime.roster import Roster, kept_ms
from limpet.runtime.settings import WorkerSettings

LEASE_MS, BEAT_MS, SILENT_MS, END_MS = 15_000, 5_000, 300_000, 34_000
SETTINGS = WorkerSettings(ttl_ms=LEASE_MS, beat_ms=BEAT_MS)


class Clock:
    """The time of a test, for the roster and for whoever looks at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 1_000.0
        monkeypatch.setattr(watching, "monotonic", lambda: self.s)
        for reads in ("monotonic_ns", "clock_gettime_ns"):
            monkeypatch.setattr(f"limpet.runtime.roster.{reads}", lambda *clock: round(self.s * 1_000_000_000))


class Child:
    """What a watch asks of a child: a roster, a process, and what was heard of it."""

    def __init__(self, roster: Roster, pid: int) -> None:
        self.roster = roster
        self.pid = pid
        self.ready: Ready | None = Ready("sqlite://", "", Serves(), b"{}", 0)
        self.leaving = False
        self.kept_at_s: float | None = None


@pytest.fixture
def roster() -> Iterator[Roster]:
    with tempfile.TemporaryFile() as file:
        file.truncate(Roster.size(1))
        roster = Roster(file.fileno(), 1)
        yield roster
        roster.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives and does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def stop(pid: int) -> None:
    """Stop a process, and return when it is."""
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


class Scene:
    """A child that was well until now, and its supervisor, which looks every second."""

    def __init__(self, roster: Roster, pid: int, clock: Clock) -> None:
        self.child = Child(roster, pid)
        self.clock = clock
        self.watch = ChildWatch(self.child, SETTINGS, SILENT_MS, END_MS)  # type: ignore[arg-type]  # a child without a socket
        for say in (roster.turn, self.beat, roster.thread):
            say()

    def beat(self) -> None:
        self.child.roster.beat(kept_ms())

    async def sentence(self, within_s: int, *does: Any) -> tuple[int, str] | None:
        """After how many seconds it was judged, and how; `does` is what the child or its supervisor does meanwhile."""
        for second in range(1, within_s + 1):
            self.clock.s += 1
            for act in does:
                act()
            if (found := await self.watch.look()) is not None:
                return second, found
        return None

    def kept(self) -> None:
        self.child.kept_at_s = self.clock.s


@pytest.fixture
def scene(roster: Roster, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(roster, sleeper.pid, Clock(monkeypatch))


async def test_a_child_that_turns_and_beats_is_left_alone(scene: Scene) -> None:
    roster = scene.child.roster
    assert await scene.sentence(400, roster.turn, scene.beat, roster.thread) is None


async def test_a_blocked_loop_is_told_of_after_a_lease_and_ends_after_five_minutes(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    roster = scene.child.roster
    assert await scene.sentence(15, scene.beat, roster.thread) is None
    assert not caplog.records
    assert await scene.sentence(2, scene.beat, roster.thread) is None
    assert [record.limpet["event"] for record in caplog.records] == ["child is silent, its event loop is blocked"]  # type: ignore[attr-defined]
    assert await scene.sentence(300, scene.beat, roster.thread) == (284, "kill")
    assert len(caplog.records) == 2  # not a line per second


async def test_a_hanging_child_ends_after_two_leases(scene: Scene) -> None:
    assert await scene.sentence(60) == (31, "kill")


async def test_a_child_that_is_still_loading_its_app_may_hang_for_long(scene: Scene) -> None:
    scene.child.ready = None
    assert await scene.sentence(299) is None


async def test_a_busy_child_whose_interpreter_is_held_ends_after_five_minutes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = ProcessState("R", 0.0)
    monkeypatch.setattr(watching, "process_state", lambda pid: ProcessState(busy.state, scene.clock.s))
    assert await scene.sentence(400) == (301, "kill")


async def test_a_stopped_child_ends_after_two_leases_though_it_is_still_loading(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.child.ready = None
    stop(scene.child.pid)
    assert await scene.sentence(60) == (31, "kill")
    first = caplog.records[0].limpet["event"]  # type: ignore[attr-defined]
    assert first == "child is silent, its process is stopped", "no handler blocks it"


async def test_a_supervisor_that_slept_too_blames_nobody_for_it(scene: Scene) -> None:
    stop(scene.child.pid)
    scene.clock.s += 3_600
    assert await scene.sentence(3) is None


async def test_a_child_that_does_not_reach_the_store_is_dismissed_within_a_lease_and_then_killed(scene: Scene) -> None:
    roster = scene.child.roster
    assert await scene.sentence(60, roster.turn, roster.thread, scene.kept) == (18, "dismiss")
    assert await scene.sentence(60, roster.turn, roster.thread, scene.kept) == (21, "kill")


async def test_a_child_is_not_blamed_for_a_store_that_nobody_reaches(scene: Scene) -> None:
    roster = scene.child.roster
    assert await scene.sentence(60, roster.turn, roster.thread) is None


async def test_an_end_that_does_not_come_to_its_end_is_cut_short(scene: Scene) -> None:
    roster = scene.child.roster
    roster.end_begins()
    assert await scene.sentence(60, roster.turn, scene.beat, roster.thread) == (36, "kill")


def test_what_was_not_watched_was_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = Clock(monkeypatch), Seen()
    assert seen.look(True) == 0
    clock.s += 1
    assert seen.look(True) == 1_000
    clock.s += 3_600
    assert seen.look(True) == 1_000 + watching.LONGEST_LOOK_MS
    assert seen.look(False) == 0
    assert seen.look(True) == 0


def test_the_system_says_whether_a_process_is_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    for ask in (process_state, _from_ps):
        well = ask(sleeper.pid)
        assert well is not None
        assert not well.stopped
    stop(sleeper.pid)
    for ask in (process_state, _from_ps):
        found = ask(sleeper.pid)
        assert found is not None
        assert found.stopped
    used = process_state(os.getpid())
    assert used is not None
    assert used.cpu_s > 0
    sleeper.kill()
    sleeper.wait()
    assert process_state(sleeper.pid) is None


@pytest.mark.parametrize(
    ("said", "seconds"), [("00:00:07", 7), ("1:02.50", 62.5), ("2-01:00:01", 2 * 86_400 + 3_601), ("0:00", 0)]
)
def test_processor_time_is_read_as_every_system_writes_it(said: str, seconds: float) -> None:
    assert _seconds(said) == seconds


def test_a_lookout_says_where_a_loop_stands(roster: Roster, caplog: pytest.LogCaptureFixture) -> None:
    roster.turn()
    monitor = LoopMonitor(roster, 20)
    monitor.start()
    deadline_s = time.monotonic() + 60
    while not caplog.records and time.monotonic() < deadline_s:
        time.sleep(0.001)  # this is the loop that stands still
    (record,) = caplog.records
    assert "test_a_lookout_says_where_a_loop_stands" in record.limpet["stack"]  # type: ignore[attr-defined]
    assert roster.still_ms() < 60_000
    monitor.stop()
