"""A mountain of jobs beside somebody's single one: with four processes at work, that one waits for one round."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from msgspec.structs import replace

from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.tasks.task import build_job
from limpet.ops.weights import set_weight
from limpet.runtime.local_queue import MOST_AHEAD
from limpet.runtime.patient_store import Patience
from tests.chaos import fair_jobs
from tests.chaos.conftest import on
from tests.chaos.field import Field
from tests.size import FULL

WORKERS: Final = 4
PLACES: Final = 10
MOUNTAIN: Final = 1_000_000 if FULL else 20_000
HILL: Final = MOUNTAIN // 5
NEWCOMERS: Final = 10 if FULL else 2
MS: Final = 0 if FULL else 1  # what a job takes: a small mountain must outlast its newcomers
BATCH: Final = 5_000
PAUSED: Final = Pause("test", "its time has not come", 0)


class Scene(NamedTuple):
    """Who has how many jobs, where the newcomers come, and how many jobs of others may be handed out before theirs."""

    tenants: Mapping[str, int]  # of each task, which has a queue of its own
    newcomers: str  # their task
    round: int
    jobs: int = HILL
    weight: int = 1
    at_work: int = WORKERS  # processes, before the first newcomer comes; under a limit some may find no room for long


CROWD: Final = 10_000 if FULL else 100
SCENES: Final = {
    "one tenant": Scene({"plain": 1}, "plain", 1, MOUNTAIN),
    "one tenant of weight 100": Scene({"weighed": 1}, "weighed", 100, weight=100),
    "many tenants": Scene({"crowded": CROWD}, "crowded", CROWD, MOUNTAIN if FULL else HILL),
    "another queue": Scene({"broad": 1}, "beside", 1),
    "three queues of five tenants": Scene({"first": 5, "second": 5, "third": 5}, "first", (5 + 1) * 3 - 1),
    "a limit that all share": Scene({"narrow": 1}, "narrow", 1, at_work=1),
    # A claim may find as much room as the limit has, and give all of it to the one whose turn it is.
    "a key that both share": Scene({"keyed": 1}, "keyed", fair_jobs.CEILING, at_work=1),
}


class Start(NamedTuple):
    tenant: str
    token: int
    at_ns: int
    process: str

    @property
    def claimed_at_ms(self) -> int:
        """When it was handed out: tokens follow the store's clock."""
        return self.token >> 11


class Wait(NamedTuple):
    """Of a newcomer: the jobs that came before it, and how long it waited."""

    handed_out: int  # to anybody, after it was enqueued and before it
    held: int  # by workers when it was enqueued, and started before it
    passed: int  # handed out after it, and started before it, by other workers
    ms: float


class Starts:
    """All jobs that were started so far, read as the trace grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self.lines: list[Start] = []
        self.by_tenant: dict[str, Start] = {}

    def read(self) -> list[Start]:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole) + bool(whole)
        for line in whole.decode().splitlines():
            tenant, token, at_ns, process = line.split()
            self.lines.append(Start(tenant, int(token), int(at_ns), process))
            self.by_tenant[tenant] = self.lines[-1]
        return self.lines

    def has(self, tenant: str) -> bool:
        self.read()
        return tenant in self.by_tenant

    def at_work(self, processes: int, since: int) -> bool:
        return len({line.process for line in self.read()[since:]}) >= processes


def wait_of(me: Start, lines: list[Start], since_ns: int) -> Wait:
    since_ms = -(-since_ns // 1_000_000)
    mine = [line for line in lines if line.token == me.token]
    later = [line for line in lines if line.token < me.token and line.claimed_at_ms > since_ms]
    before = [line for line in lines if since_ns < line.at_ns < me.at_ns]
    passed = [line for line in before if line.token > me.token]
    assert me.process not in {line.process for line in passed}, "its worker started what came later before it"
    return Wait(
        handed_out=mine.index(me) + len(later),
        held=sum(line.token < me.token and line.claimed_at_ms <= since_ms for line in before),
        passed=len(passed),
        ms=(me.at_ns - since_ns) / 1e6,
    )


@on("redis", why="each engine's order is in the contract; this is about what workers ask for")
@pytest.mark.timeout(3_600 if FULL else 900)
async def test_a_newcomer_waits_for_one_round_whatever_others_have(
    field: Field, request: pytest.FixtureRequest
) -> None:
    ids, starts = IdMaker(), Starts(field.trace_file)
    tasks = fair_jobs.app.parts().tasks
    await field.store.change_gates([GateChange(f"queue:{task}", pause=PAUSED) for task in tasks])
    # No lease may run out on a busy machine: its jobs would be handed out twice.
    field.start(app="tests.chaos.fair_jobs:app", processes=WORKERS, concurrency=PLACES, ttl_ms=60_000)
    for scene in SCENES.values():
        await build(field, ids, scene)
    await settle_in(field)
    waits: dict[str, list[Wait]] = {}
    for name, scene in SCENES.items():
        queues = {*scene.tenants, scene.newcomers}
        await field.store.change_gates([GateChange(f"queue:{queue}", resume=True) for queue in queues])
        await field.until("they are at work", partial(starts.at_work, scene.at_work, len(starts.read())))
        came = [await newcomer(field, ids, scene.newcomers, starts) for _ in range(NEWCOMERS)]
        counts = await field.store.count()
        await field.store.change_gates([GateChange(f"queue:{queue}", pause=PAUSED) for queue in queues])
        assert all(counts.now.get((task, task, State.ready)) for task in scene.tenants), f"{name}: the mountain is gone"
        waits[name] = [wait_of(starts.by_tenant[tenant], starts.lines, since_ns) for tenant, since_ns in came]
    request.node.add_report_section("call", "waits", "\n".join(f"{name}: {those}" for name, those in waits.items()))
    for name, scene in SCENES.items():
        assert max(wait.handed_out for wait in waits[name]) <= scene.round, (name, waits[name])
        assert max(wait.held for wait in waits[name]) <= WORKERS * (PLACES + MOST_AHEAD), (name, waits[name])


async def build(field: Field, ids: IdMaker, scene: Scene) -> None:
    """Enqueue all that the tenants of a scene have, in queues that are paused."""
    tasks = fair_jobs.app.parts().tasks
    models: list[Job] = []
    rules: dict[str, GateRule] = {}
    for task, tenants in scene.tenants.items():
        for number in range(tenants):
            tenant = f"{task}-{number}"
            job, declared = build_job(tasks[task], {"tenant": tenant, "ms": MS}, id=b"")
            models.append(job)
            rules |= {rule.key: rule for rule in declared}
            if scene.weight != 1:
                await set_weight(field.store, f"tenant:{tenant}", scene.weight)
    turns = cycle(models)
    patience = Patience(field.rng)  # a busy machine may take longer for a batch than a caller waits for its answer
    for done in range(0, scene.jobs, BATCH):
        batch = list(islice(turns, min(BATCH, scene.jobs - done)))
        made = ids.make_many(len(batch), time.time_ns() // 1_000_000)
        jobs = [replace(job, id=id) for job, id in zip(batch, made, strict=True)]
        await patience.ask("enqueue", partial(field.store.enqueue, jobs, list(rules.values())))


async def settle_in(field: Field) -> None:
    """Let the store put in order what was enqueued while nobody claimed, as PostgreSQL leaves it to claims to do."""
    nowhere = Serves(queues=("nowhere",))
    await field.store.beat(Beat("clerk", 3_600_000, nowhere))
    for seq in count(1):
        if not (await field.store.claim(ClaimRequest("clerk", nowhere, 1, 1, seq))).again:
            break
    await field.store.leave("clerk")


async def newcomer(field: Field, ids: IdMaker, task: str, starts: Starts) -> tuple[str, int]:
    """Enqueue somebody's only job at some moment, and wait for its start; who it is, and since when it is there."""
    await asyncio.sleep(field.rng.uniform(0, 0.02))
    (id,) = ids.make_many(1, time.time_ns() // 1_000_000)
    tenant = id.hex()
    job, rules = build_job(fair_jobs.app.parts().tasks[task], {"tenant": tenant, "ms": MS}, id=id)
    await field.store.enqueue([job], rules)
    since_ns = time.time_ns()
    await field.until("the newcomer is served", partial(starts.has, tenant))
    return tenant, since_ns
