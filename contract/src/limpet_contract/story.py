"""A day in the life of a store in some hundred calls: every verb is called, and every job has a known end."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Unpack

import msgspec

from limpet.core.endings.hook import QUEUE, Ending, Hook
from limpet.core.endings.transition import Lose, Release
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job, Lane, Unique
from limpet.core.jobs.lease import Claimed, Note, Serves, Signal, Takes
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Entry, Query, Retention, Term
from limpet.stores.asking import examined
from limpet_contract.bench import Bench
from limpet_contract.hand import NONE
from limpet_contract.making import JobOptions, make_job

LATE_MS = 300  # a message that has not come by then was lost: it was sent before the enqueue was answered
HOOK = Hook(Lane(QUEUE, "hook"), states=(State.dead, State.cancelled))


class Story:
    """The ids are chosen before the first call, as clients do, so that a repeated enqueue is the same jobs."""

    ENDS: ClassVar[dict[str, State | None]] = {
        "first": None,  # of the lane of a lone job; succeeds and is pruned
        "lone": None,  # is handed to a worker that sleeps, where the engine does so; succeeds and is pruned
        "plain": None,  # succeeds and is pruned
        "retried": State.succeeded,
        "parent": State.succeeded,
        "child": State.succeeded,
        "guilty": State.dead,
        "victim": State.cancelled,
        "spoiled": None,  # dies and is discarded
        "dropped": State.cancelled,
        "unwanted": State.cancelled,
        "revoked": State.cancelled,
        "limited 1": State.succeeded,
        "limited 2": State.succeeded,
        "limited 3": State.ready,
        "agent": State.succeeded,  # sleeps, waits for an event, dies and forgets a step on its way
        "later": State.scheduled,
        "unique": State.ready,
        "relayed": State.ready,
    }
    TOLD: ClassVar[dict[str, int]] = {  # how many of its ends a hook hears of
        "guilty": 2,
        "victim": 2,
        "spoiled": 1,
        "dropped": 1,
        "unwanted": 1,
        "revoked": 1,
        "agent": 1,
    }

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.hand = bench.hand("teller")
        self.ids = {name: bench.id() for name in self.ENDS}
        self.flow = bench.id()
        self.acknowledged: list[bytes] = []  # successes that the store has confirmed

    async def tell(self) -> None:
        """The whole story; the connection may be lost at any call."""
        self.hand.serves, self.hand.takes = Serves(tasks=("lone",)), Takes(1, 1)
        await self._first(self.bench)
        await self._succeed(await self.hand.take())
        assert await self.hand.claim() == []
        await self.produce(self.bench)
        await self._work()
        await self._stop()
        await self._correct()
        await self._limit()
        await self._suspend()
        await self._look()
        await self._clean_up()

    # -- producing

    def _job(self, name: str, **options: Unpack[JobOptions]) -> Job:
        options.setdefault("task", name)
        return make_job(self.ids[name], options)

    async def _first(self, bench: Bench) -> None:
        await bench.put(self._job("first", task="lone"))

    async def produce(self, bench: Bench) -> None:
        """Calls that may be repeated by a caller that got no answer."""
        await self._first(bench)
        await bench.put(self._job("lone"))
        await bench.store.put_control(HOOK.control())
        await bench.put(
            self._job("plain"),
            self._job("retried"),
            self._job("parent"),
            self._job("child", after=(self.ids["parent"],)),
            self._job("guilty"),
            self._job("victim", after=(self.ids["guilty"],)),
            self._job("spoiled"),
            self._job("dropped"),
            self._job("unwanted"),
            self._job("revoked"),
            self._job("agent", flow=self.flow),
        )
        limited = [self._job(f"limited {n}", task="limited", limits=("smtp",)) for n in (1, 2, 3)]
        await bench.put(*limited, rules=[GateRule("limit:smtp", concurrency=2)])
        await bench.put(self._job("later", delay_ms=30_000), self._job("unique", unique=Unique("once", for_ms=600_000)))
        await bench.store.relay("orders", 1, [self._job("relayed")], now_ms=bench.clock.now_ms)

    async def signal(self, bench: Bench) -> None:
        """One call, which may be made again like those that produce."""
        await bench.signal(Signal(self.ids["agent"], "approved", b"true"))

    # -- working

    async def told(self, bench: Bench) -> Counter[str]:
        """The ends that a hook has heard of, by the names of the jobs."""
        names = {id_text(id): name for name, id in self.ids.items()}
        jobs = [job for job in await bench.everything() if job.lane == HOOK.lane]
        found = [msgspec.json.decode(job.args, type=dict[str, Ending])["ending"].job for job in jobs]
        return Counter(names[id] for id in found)

    async def _take(self, task: str) -> Claimed:
        self.hand.serves = Serves(tasks=(task,))
        return await self.hand.take()

    async def _succeed(self, *jobs: Claimed) -> None:
        answers = await self.hand.succeed(*jobs, result=b'{"ok":true}')
        self.acknowledged += [job.id for job, answer in zip(jobs, answers, strict=True) if answer.answer == "done"]

    async def _take_lone(self) -> Claimed:
        """It has come with a wake-up. Where that was lost, its worker finds that it holds a job, and hands it back."""
        handed = await self.hand.handed(LATE_MS)
        self.hand.takes = NONE
        if handed:
            return handed[0].job
        if held := await self.bench.store.held("teller"):
            await self.hand.settle(*(Release(one.id, one.token) for one in held))
        return await self._take("lone")

    async def _work(self) -> None:
        await self._succeed(await self._take_lone())
        job = await self._take("plain")
        await self.hand.save(job, Note("step", "charge", b"1"))
        await self._succeed(job)
        self.bench.clock.advance(10_000)
        await self.hand.fail(await self._take("retried"))
        await self._succeed(await self._take("retried"))
        await self._succeed(await self._take("parent"))
        await self._succeed(await self._take("child"))
        for task in ("guilty", "spoiled"):
            await self.hand.bury(await self._take(task))
        await self.hand.drop(await self._take("dropped"))

    async def _stop(self) -> None:
        job = await self._take("unwanted")
        await self.bench.cancel(job.id)
        await self.hand.beat()
        await self.hand.drop(job)
        await self._take("revoked")
        await self.bench.cancel(self.ids["revoked"], force=True)

    async def _correct(self) -> None:
        self.bench.clock.advance(1)  # the second end of the victim is another one
        await self.bench.retry(self.ids["guilty"])
        await self._take("guilty")
        held = await self.bench.store.held("teller")
        await self.hand.settle(*(Lose(one.id, one.token, True, "killed its process") for one in held))
        await self.bench.store.discard([self.ids["spoiled"]], now_ms=self.bench.clock.now_ms)

    async def _limit(self) -> None:
        await self.hand.snooze(await self._take("unique"), 1_000)
        await self.hand.hold(await self._take("limited"), "limit:smtp", 1_000)
        await self.bench.change(GateChange("queue:default", pause=Pause("ada", "a look", self.bench.clock.now_ms)))
        await self.bench.change(GateChange("queue:default", resume=True))
        self.bench.clock.advance(1_000)
        await self.hand.release(await self._take("unique"))
        self.bench.clock.advance(10_000)  # what was pushed back begins slowly
        self.hand.serves = Serves(tasks=("limited",))
        await self._succeed(*await self.hand.claim(5))

    async def _suspend(self) -> None:
        job = await self._take("agent")
        for step in ("fetch", "send"):
            await self.hand.save(job, Note("step", step, b"1"))
        await self.hand.suspend(job, 1_000)
        self.bench.clock.advance(1_000)
        await self.hand.suspend(await self._take("agent"), None, "approved")
        await self.signal(self.bench)
        job = await self._take("agent")
        assert {(note.kind, note.name) for note in job.notes} == {
            ("event", "approved"),
            ("step", "fetch"),
            ("step", "send"),
        }
        await self.hand.bury(job)
        await self.bench.retry(self.ids["agent"], forget=("send",))
        job = await self._take("agent")
        assert {(note.kind, note.name) for note in job.notes} == {("event", "approved"), ("step", "fetch")}
        await self._succeed(job)

    async def _look(self) -> None:
        store, now_ms = self.bench.store, self.bench.clock.now_ms
        await store.now()
        await store.get([self.ids["plain"]])
        await store.find(Query(), now_ms=now_ms)
        await store.find(Query(terms=(Term("flow", id_text(self.flow)),)), now_ms=now_ms)
        await store.flows()
        await store.find(Query(suffix=id_text(self.ids["plain"])[-6:]))
        await store.inspect(self.ids["guilty"])
        await store.causes()
        await store.count(queues=True)
        await store.inspect(self.ids["later"], now_ms=now_ms)
        await store.gates()
        await examined(store).accounts()
        await store.sessions()
        await examined(store).check()
        await examined(store).repair(dry_run=False, now_ms=now_ms)
        await store.watch(self.ids["plain"], 1_000)
        await store.wait("teller", 1)

    async def _clean_up(self) -> None:
        store, now_ms = self.bench.store, self.bench.clock.now_ms
        await store.put_control(Control("tick", "digest", b"1"), expect=0)
        await store.controls("tick")
        await store.append([Entry("audit", now_ms, "retry", "ada", self.ids["guilty"])])
        await store.read("audit")
        await store.expire(now_ms=now_ms)
        while await store.prune(Retention(succeeded_ms=15_000), now_ms=now_ms):
            pass
        await self.hand.leave()
