"""A store goes to the next layout, a made-up one, under load. Workers and producers of this release work on."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import State
from limpet.stores.sqlite.connection import layout_of
from limpet.stores.sqlite.library import library
from tests.chaos.field import ROOT, Field, WorkerProcess, kill, thaw
from tests.engines.redis.audit import everything, faults
from tests.next_release import REDIS, SQLITE, next_release
from tests.servers.redis import RedisServer

SOME = 40  # effects: enough that every kind of job is among them
LEASE_MS = 6_000  # none that lives may lose it, however busy the machine is


class Street:
    """The stalls of both releases on one store, and what was seen there."""

    def __init__(self, field: Field, errors: Path) -> None:
        self.field = field
        self.workers: list[WorkerProcess] = []
        self.producers: list[WorkerProcess] = []
        errors.touch()
        field.errors = errors

    async def hire(self, source: Path) -> None:
        """Start a worker of a release, and wait until the store knows it."""
        worker = self.field.start(app="tests.chaos.stall:app", source=source, ttl_ms=LEASE_MS)
        self.workers.append(worker)
        await self.field.until(f"a worker of {source} is there", partial(self.field.lives, worker))

    def order(self, source: Path) -> None:
        self.producers.append(self.field.run("-m", "tests.chaos.stall", source=source))

    async def works(self, *sources: Path) -> None:
        """Wait until workers of these releases have done some jobs from now on."""
        seen = len(self.field.trace())
        for source in sources:
            await self.field.until(f"{source} works", partial(self._has_worked, source, seen))

    def _has_worked(self, source: Path, seen: int) -> bool:
        return sum(line[0] == "effect" and line[2] == str(source) for line in self.field.trace()[seen:]) >= SOME

    async def kill_at_work(self, worker: WorkerProcess) -> None:
        """Kill a worker that has jobs in its hands."""
        self.workers.remove(worker)
        await self.field.until("a worker was killed with jobs in its hands", partial(self._killed_at_work, worker))

    async def _killed_at_work(self, worker: WorkerProcess) -> bool:
        tree = await self.field.freeze(worker)
        at_work = any(view.running and f":{worker.pid}:" in view.session for view in await self.field.store.sessions())
        for pid in tree if at_work else ():
            kill(pid)
        thaw(tree)
        return at_work

    async def close(self) -> None:
        """Orders stop, every job ends, then the workers stop."""
        await ended(self.producers)
        await self.field.finished(len(self.ordered()))
        await ended(self.workers)

    def ordered(self) -> set[str]:
        return {line[1] for line in self.field.trace("ordered")}

    async def everything_happened_once(self) -> None:
        """What was acknowledged has succeeded, with its effect: twice only where the kill came between the two."""
        ordered, times = self.ordered(), Counter(line[1] for line in self.field.trace("effect"))
        views = {view.id: view for view in await self.field.views([id_bytes(job) for job in ordered])}
        assert len(views) == len(ordered), "lost"
        assert {line[2] for line in self.field.trace("ordered")} == {line[2] for line in self.field.trace("effect")}
        assert {view.state for view in views.values()} == {State.succeeded}
        assert set(times) == ordered, "done without being ordered, or the other way round"
        assert not {job for job, number in times.items() if number > 1 + views[id_bytes(job)].lost}, "done again"
        assert any(view.lost for view in views.values()), "the kill took jobs away"
        counts = await self.field.store.count()
        assert (counts.enqueued, counts.succeeded, counts.stale) == (len(ordered), len(ordered), 0)
        assert self.field.errors is not None
        assert self.field.errors.read_text() == ""


async def ended(programs: list[WorkerProcess]) -> None:
    """Stop programs; each ends without an error."""
    for program in programs:
        program.signal(signal.SIGTERM)
    assert [await program.ended() for program in programs] == [0] * len(programs)


@pytest.fixture
async def street(field: Field, tmp_path: Path) -> Street:
    """Two workers and a producer of this release, at work."""
    await field.look_after()
    street = Street(field, tmp_path / "errors")
    await street.hire(ROOT)
    await street.hire(ROOT)
    street.order(ROOT)
    await street.works(ROOT)
    return street


async def upgrade(street: Street, then: Path) -> None:
    """The next release comes, one worker of each release is killed, and everything that was ordered ends."""
    await street.hire(then)
    street.order(then)
    await street.works(ROOT, then)
    await street.kill_at_work(street.workers[0])
    await street.hire(ROOT)  # its machine comes back, not upgraded yet
    await street.works(ROOT, then)
    await street.kill_at_work(street.workers[1])  # of the next release
    await street.hire(then)
    await street.works(ROOT, then)
    await street.close()
    await street.everything_happened_once()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_workers_of_two_layouts_share_a_namespace(street: Street, server: RedisServer, tmp_path: Path) -> None:
    await upgrade(street, next_release(tmp_path / "next", REDIS))
    found = everything(server, "default")
    assert (found[b"m"][b"layout"], found[b"m"][b"min_client"]) == (b"2", b"1")
    assert int(found[b"rg"][b"eu"]) > SOME, "the next release wrote what it adds"
    assert faults(server, "default") == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_workers_of_two_layouts_share_a_file(street: Street, tmp_path: Path) -> None:
    await upgrade(street, next_release(tmp_path / "next", SQLITE))
    with closing(library.connect(tmp_path / "chaos.db")) as conn:
        assert layout_of(conn, "limpet_") == (2, 1)
        regions = {region for (region,) in conn.execute("SELECT DISTINCT region FROM limpet_job")}
        assert regions == {"old", "eu", None}, "both releases went on after the migration"
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
