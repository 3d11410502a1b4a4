"""A fast path leaves the store exactly as the full path does: every key, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.endings.transition import Hold, Succeed
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Job
from limpet.stores.open import open_store
from limpet.stores.redis import claim, enqueue, settle
from limpet.stores.redis.scripts import script, source
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.harness import Clock
from limpet_contract.making import JobOptions
from limpet_contract.seeds import chance_of
from tests.engines.redis.audit import everything
from tests.engines.redis.place import Numbers
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared
from tests.size import in_matrix

T0 = 1_900_000_000_000
LANES: list[JobOptions] = [
    {},
    {},
    {"task": "other"},
    {"priority": 0},
    {"tenant": "acme"},
    {"limits": ("smtp",)},
    {"args": b'{"x":"' + b"x" * 2_000 + b'"}'},
    {"delay_ms": 3_000},
    {"expires_ms": 4_000, "tags": ("tagged",)},
    {"costs": {"usd": 3}},
    {"limits": ("usd",), "costs": {"usd": 3}},
    {"keys": ("usd",), "costs": {"usd": 2}},
]
USD = GateRule("limit:usd", unit="usd", cap=40, period="minute")
SMTP = GateRule("limit:smtp", concurrency=8, interval_us=20_000, burst=50, floor=125, climb_ms=5_000)
HELD = ["limit:smtp", "limit:usd", "task:other"]


class Walk:
    """The same steps for the same seed, whatever the scripts."""

    def __init__(self, server: RedisServer, namespace: str, seed: int) -> None:
        self.rng = chance_of(seed)
        self.bench = Bench(open_store(f"{server.url}?keep=20", namespace), Clock(T0))
        self.bench.ids = Numbers()  # type: ignore[assignment]  # ids that are the same in both walks
        self.hands = [self.bench.hand("one"), self.bench.hand("two", tasks=("work",)), self.bench.hand("three")]
        self.seq = 0
        self.said: list[Any] = []
        self.stored: list[Job] = []

    async def go(self, steps: int) -> None:
        for hand in self.hands:
            await hand.beat()
        await self.bench.declare(USD, SMTP)
        for _ in range(steps):
            await self.rng.choice([self.put, self.put, self.take, self.take, self.take, self.rest])()
        await self.bench.check_books()
        await self.bench.store.close()

    async def put(self) -> None:
        lane = self.rng.choice(LANES)
        jobs = [self.bench.job(**lane) for _ in range(self.rng.choice([1, 1, 1, 3, 70]))]
        if self.stored and self.rng.random() < 0.2:
            jobs.append(self.rng.choice(self.stored))
        self.stored += jobs
        self.said.append(await self.bench.put(*jobs))

    async def take(self) -> None:
        hand = self.rng.choice(self.hands)
        self.seq += 1
        least, aged, most = self.rng.choice([(9, 0, 0), (9, 0, 0), (3, 0, 0), (9, 2, 4), (3, 1, 4)])
        limit = self.rng.choice([1, 2, 8, 100])
        jobs = (await hand.ask(limit, least_urgent=least, aged=aged, most_urgent=most, seq=self.seq)).jobs
        self.said.append(jobs)
        if jobs:
            await self.end(hand, list(jobs))

    async def end(self, hand: Hand, jobs: list[Any]) -> None:
        result = self.rng.choice([None, None, b"7"])
        part = jobs[: self.rng.randint(1, len(jobs))]
        self.seq += 1
        how = self.rng.random()
        spent = {part[0].id: {"usd": self.rng.randint(0, 5)}} if self.rng.random() < 0.3 else {}
        if how < 0.7:
            ends = [Succeed(job.id, job.token, result) for job in part]
            self.said.append(await hand.settle(*ends, seq=self.seq, spent=spent))
        elif how < 0.8:
            gate, trips = self.rng.choice(HELD), self.rng.random() < 0.2
            held = [Hold(job.id, job.token, gate, self.rng.choice([0, 500]), "429", trips) for job in part]
            self.said.append(await hand.settle(*held, seq=self.seq))
        else:
            ending = ENDINGS["release" if how < 0.9 else "fail"]
            self.said.append(await hand.settle(*map(ending, part), seq=self.seq))

    async def rest(self) -> None:
        self.bench.clock.advance(self.rng.choice([0, 1, 700, 4_000]))
        for hand in self.hands:
            await hand.beat()
        if self.rng.random() < 0.3:
            ruled = GateChange("task:other", rule=GateRule("task:other", concurrency=self.rng.choice([None, 1, 6])))
            await self.bench.change(ruled, GateChange("limit:smtp", ceiling=self.rng.choice([250, 1_000])))


def full_path(name: str) -> Any:
    return script(name, fast_path=False)


@pytest.mark.parametrize("seed", [0, 1, *in_matrix("further seeds of the same walk", *range(2, 8))])
async def test_the_fast_paths_leave_what_the_full_paths_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = shared(REDIS)
    paths: dict[str, Callable[[str], Any]] = {"fast": script, "full": full_path}
    left, said = [], []
    for name, chosen in paths.items():
        for module in (claim, enqueue, settle):
            monkeypatch.setattr(module, "script", chosen)
        walk = Walk(server, f"{name}-{seed}", seed)
        await walk.go(150)
        found = everything(server, f"{name}-{seed}")
        left.append({key: value for key, value in found.items() if not key.startswith((b"mb:", b"once:"))})
        said.append(walk.said)
    assert said[0] == said[1]
    assert left[0].keys() == left[1].keys()
    fast, full = ({key: comparable(value) for key, value in each.items()} for each in left)
    assert {key: (fast[key], full[key]) for key in fast if fast[key] != full[key]} == {}


def comparable(value: Any) -> Any:
    """Sets come in any order; the process that listens is another one, and each store has a name of its own."""
    if isinstance(value, list):
        return sorted(value)
    if isinstance(value, dict):
        return {name: content for name, content in value.items() if name not in (b"mailbox", b"opened", b"store")}
    return value


@pytest.mark.parametrize("verb", ["enqueue", "claim", "settle"])
def test_each_fast_path_is_taken_by_its_verb(verb: str) -> None:
    text = "\n".join(source(f"lib/{verb}_fast.lua").splitlines()[-8:])
    assert text in script(verb).text
    assert text not in full_path(verb).text
