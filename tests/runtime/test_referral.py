"""Jobs that wait for code which has gone: left alone while its worker may come back, then placed again."""

from __future__ import annotations

import random
from collections.abc import Mapping

from limpet.core.endings.refusal import code_of
from limpet.core.endings.transition import Bury, Failure, Refuse, Transition
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest
from limpet.core.tasks.task import TaskSpec
from limpet.runtime import Parts, Worker, WorkerPlan
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.referral import Referral
from tests.runtime.running import Bench


def _old(to: str) -> None: ...


def _new(to: str, cc: str) -> None: ...


OLD, NEW = ({"send": TaskSpec.declare(fn, name="send")} for fn in (_old, _new))


class Place:
    """A worker with the old code, moved by hand: its clock, and what it has settled."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.now_s = 1_000.0
        self.settled: list[Transition] = []
        self.plan = WorkerPlan(store=bench.store, parts=Parts(tasks=OLD), clock_s=lambda: self.now_s)
        patient = PatientStore(bench.store, random.Random(1))
        self.referral = Referral(self.plan, patient, self.settled.append)

    async def present(self, tasks: Mapping[str, TaskSpec], session: str) -> None:
        """A worker with this code lives under that name."""
        plan = WorkerPlan(store=self.bench.store, parts=Parts(tasks=tasks), session=session)
        await self.bench.store.beat(Beat(session, 600_000, plan.serves, Worker(plan).info()))

    async def refused(self) -> Claimed:
        """A job of the new code that the old worker has refused: it waits for the new one."""
        await self.present(OLD, self.plan.session)
        await self.present(NEW, "new")
        await self.bench.put(NEW["send"], {"to": "a", "cc": "b"})
        (job,) = (await self.bench.store.claim(ClaimRequest(self.plan.session, self.plan.serves, 1, 1, 1))).jobs
        why = Failure("permanent", "limpet.InvalidArguments", "it has no parameter 'cc'")
        refuse = Refuse(job.id, job.token, why, OLD["send"].signature.fingerprint)
        placed = await self.referral.refer(job, refuse)
        assert isinstance(placed, Refuse)
        await self.bench.store.settle(self.plan.session, 1, [placed])
        return job


async def test_a_worker_that_starts_again_finds_its_jobs(bench: Bench) -> None:
    place = Place(bench)
    await place.refused()
    await bench.store.leave("new")
    for _ in range(3):
        await place.referral.look()
        place.now_s += 9.0
    await place.present(NEW, "new again")
    await place.referral.look()
    await bench.store.leave("new again")
    place.now_s += 9.0
    await place.referral.look()
    assert place.settled == []


async def test_a_job_is_placed_again_when_its_code_stays_away(bench: Bench) -> None:
    place = Place(bench)
    job = await place.refused()
    await bench.store.leave("new")
    await place.referral.look()
    place.now_s += 30.0
    await place.referral.look()
    (buried,) = place.settled
    assert isinstance(buried, Bury)
    assert (buried.id, buried.lane) == (job.id, job.lane)
    assert place.referral.held == set()


async def test_a_look_finds_nothing_where_nothing_waits_for_code(bench: Bench) -> None:
    place = Place(bench)
    await place.present(OLD, place.plan.session)
    await place.referral.look()
    assert await bench.store.controls("code") == []
    await place.refused()
    (control,) = await bench.store.controls("code")
    assert control.name == code_of({"send": NEW["send"].signature.fingerprint})
