"""Jobs in every state, and ways to spoil what is stored of them behind the engine's back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Claimed, Note, Signal
from limpet.core.jobs.view import Retention
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.making import JobOptions
from tests.engines.redis.place import Numbers, Place

RULES: Final = (
    GateRule("limit:smtp", concurrency=8, interval_us=1_000, burst=500),
    GateRule("limit:usd", unit="usd", cap=10_000, period="day"),
)
KINDS: Final[list[JobOptions]] = [
    {},
    {"task": "other", "priority": 0},
    {"limits": ("smtp",)},
    {"keys": ("customer",), "tenant": "acme"},
    {"limits": ("usd",), "costs": {"usd": 3}},
    {"args": b'{"x":"' + b"x" * 2_000 + b'"}', "tags": ("large",)},
    {"expires_ms": 30_000},
]
PER_STATE: Final = 7  # as many as there are kinds

Damage = Callable[[bytes, Random], bytes | None]


def flip(raw: bytes, rng: Random) -> bytes:
    """One bit, anywhere."""
    at = rng.randrange(len(raw))
    return raw[:at] + bytes((raw[at] ^ (1 << rng.randrange(8)),)) + raw[at + 1 :]


DAMAGES: Final[dict[str, Damage]] = {
    "another version": lambda raw, rng: b"\x02" + raw[1:],
    "another state": lambda raw, rng: raw[:1] + b"\xff" + raw[2:],
    "cut in its head": lambda raw, rng: raw[: rng.randrange(36, 56)],
    "cut short": lambda raw, rng: raw[: rng.randrange(36)],
    "cut anywhere": lambda raw, rng: raw[: rng.randrange(len(raw))],
    "a flipped bit": flip,
    "another lane": lambda raw, rng: raw[:28] + bytes(8) + raw[36:],
    "noise": lambda raw, rng: rng.randbytes(len(raw)),
    "nothing": lambda raw, rng: b"",
    "removed": lambda raw, rng: None,
}


class Wreck:
    """A store with some jobs in each state, a worker that holds some, and those that are spoilt."""

    def __init__(self, place: Place, rng: Random) -> None:
        self.place = place
        place.ids = Numbers()  # type: ignore[assignment]  # ids that are the same for the same seed
        self.rng = rng
        self.hands: list[Hand] = [place.hand("one"), place.hand("two")]
        self.held: list[tuple[Hand, Claimed]] = []
        self.flow = place.id()
        self.parents: list[bytes] = []
        self.spoilt: list[bytes] = []

    async def build(self) -> None:
        """Jobs in every state: some by themselves, some with dependents, keys, notes and flows."""
        place = self.place
        await place.declare(*RULES)
        for ending in ("succeed", "bury", "drop", "fail", "wait"):
            await self._put(PER_STATE, queue="done")
            for job in await self.hands[0].claim(100):
                await self.hands[0].save(job, Note("step", "one", b"1"))
                await self.hands[0].end(ending, job)
        await self._put(2 * PER_STATE)
        for hand in self.hands:
            self.held += [(hand, job) for job in await hand.claim(PER_STATE)]
        await self._put(PER_STATE, delay_ms=5_000)
        await self._put(PER_STATE)
        self.parents = [*await place.add_many(2), *(job.id for _, job in self.held[:3])]
        for parent in self.parents:
            await self._put(3, after=(parent,), if_parent_fails=self.rng.choice(["cancel", "run", "wait"]))

    async def _put(self, count: int, **options: object) -> None:
        for number in range(count):
            unique = Unique(f"key-{self.rng.randrange(40)}") if self.rng.random() < 0.3 else None
            flow = self.flow if self.rng.random() < 0.3 else None
            given: JobOptions = {**KINDS[number % len(KINDS)], "unique": unique, "flow": flow, **options}  # type: ignore[typeddict-item]
            await self.place.put(self.place.job(**given))

    def spoil(self, damage: Damage, share: float = 0.4) -> None:
        """Spoil some of the records, whatever state their jobs are in."""
        server, records = self.place.server, self.place.key("J")
        for id in sorted(server.ask("HKEYS", records)):
            if self.rng.random() >= share:
                continue
            self.spoilt.append(id)
            raw = damage(server.ask("HGET", records, id), self.rng)
            if raw is None:
                server.ask("HDEL", records, id)
            else:
                server.ask("HSET", records, id, raw)

    async def every_verb(self) -> None:
        """What workers, producers, people and janitors do, in any order; on spoilt jobs as on others."""
        steps = [self._settle, self._claim, self._people, self._signal, self._produce, self._sweep, self._save]
        for step in self.rng.sample(steps * 2, 2 * len(steps)):
            await step()

    async def clear(self) -> None:
        """The workers go, time passes, and whatever has not been noticed yet is asked for."""
        place = self.place
        await self.hands[0].leave()
        await place.sweep(40_000)
        await place.store.leave("two", now_ms=place.clock.now_ms)
        await self._claim()
        await place.cancel(*self.spoilt)
        await place.cancel(*self.spoilt, force=True)
        await self.hands[0].leave()

    async def _settle(self) -> None:
        self.rng.shuffle(self.held)
        part, self.held = self.held[:4], self.held[4:]
        for hand in self.hands:
            ends = [ENDINGS[self.rng.choice(list(ENDINGS))](job) for owner, job in part if owner is hand]
            await hand.settle(*ends)

    async def _claim(self) -> None:
        for hand in self.hands:
            await hand.beat()
            self.held += [(hand, job) for job in await hand.claim(self.rng.choice([1, 5]))]

    async def _people(self) -> None:
        some = self.rng.sample(self.spoilt, min(3, len(self.spoilt)))
        await self.place.cancel(*some[:1], force=self.rng.random() < 0.5)
        await self.place.retry(*some[1:2])
        await self.place.store.discard(some[2:], now_ms=self.place.clock.now_ms)
        await self.place.everything()
        await self.place.store.get(some)

    async def _signal(self) -> None:
        some = self.rng.sample(self.spoilt, min(3, len(self.spoilt)))
        await self.place.signal(*(Signal(id, "go", b"1") for id in some))

    async def _produce(self) -> None:
        place = self.place
        keys = [Unique(f"key-{self.rng.randrange(40)}", on_duplicate="replace") for _ in range(5)]
        await place.put(*(place.job(unique=key, delay_ms=self.rng.choice([0, 9_000])) for key in keys))
        stored = [id for id in self.spoilt if place.server.ask("HEXISTS", place.key("J"), id)]
        if stored:
            await place.put(place.job(after=(self.rng.choice(stored),)))
            await place.put(place.job(id=self.rng.choice(stored)), place.job())

    async def _sweep(self) -> None:
        place = self.place
        await place.sweep(3_000, self.hands[self.rng.randrange(2)])
        retention = Retention(succeeded_ms=2_000, cancelled_ms=2_000, dead_ms=self.rng.choice([None, 2_000]))
        for _ in range(3):
            await place.store.prune(retention, now_ms=place.clock.now_ms)

    async def _save(self) -> None:
        for hand, job in self.held[:3]:
            await hand.save(job, Note("progress", "", b"1"))
            await hand.beat([(job.id, job.token, Note("log", "1", b"line"))])
