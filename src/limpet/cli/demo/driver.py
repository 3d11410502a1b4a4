"""Runs the demo's story, each act once: what is done is in the journal, so a killed driver continues where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from limpet.cli.demo.fleet import Fleet
from limpet.cli.demo.folder import NAMESPACE, Folder
from limpet.cli.demo.ledger import Ledger
from limpet.cli.demo.observer import Observer
from limpet.cli.demo.plan import GREEDY, Plan, Wanted
from limpet.cli.demo.provider import Provider
from limpet.cli.demo.screen import Screen, some
from limpet.cli.demo.tasks import app
from limpet.cli.demo.verify import Summary, gather_facts, verify
from limpet.client.handle import JobHandle
from limpet.core.errors import StoreError
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import Query
from limpet.ops import Operator

WORKERS: Final = 2
EMAILS_PER_S: Final = 136  # 3,000 in 22 s, while everything else happens
SHORTEST_STREAM_S: Final = 3.0
TICK_S: Final = 0.05
OUTAGE_S: Final = 4.0
OUTAGE_FROM, DEPLOYMENT_FROM = 0.15, 0.35  # shares of the emails after which these acts begin
LONGEST_S: Final = 300.0
TRIES: Final = 5


class Driver:
    """One run of the demo in one folder."""

    def __init__(self, folder: Folder, plan: Plan, screen: Screen) -> None:
        self._folder = folder
        self._plan = plan
        self._screen = screen
        app.rebind(folder.url, namespace=NAMESPACE)
        self._operator = Operator(app.store, "demo")
        self._observer = Observer(app.store, folder, screen)
        self._fleet = Fleet(folder, app.store, screen.say)
        self._provider = Provider()
        self._marks = {share: asyncio.Event() for share in (OUTAGE_FROM, DEPLOYMENT_FROM)}

    async def run(self) -> Summary:
        """Play what is not yet played, then compare the plan, the store and the ledger."""
        with Ledger(self._folder.ledger, create=True) as ledger:
            async with app:
                if not self._folder.noted("finished"):
                    await self._play_in_time()
                facts = await gather_facts(app.store, ledger, self._folder, self._plan)
                return verify(self._plan, facts)

    async def _play_in_time(self) -> None:
        async with self._provider.serving():
            self._folder.publish_provider(self._provider.url)
            lives = (self._play(), self._observer.watch(), self._fleet.guard())  # only the first ends by itself
            parts = [asyncio.create_task(life) for life in lives]
            try:
                ended, _ = await asyncio.wait(parts, timeout=LONGEST_S, return_when=asyncio.FIRST_COMPLETED)
                for part in ended:
                    await part
                if ended:
                    self._folder.note("finished")
                else:
                    self._screen.say(f"not finished after {LONGEST_S:g} s", "red")
                    await self._explain_the_rest()
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.wait(parts)
                await self._fleet.stop()

    async def _play(self) -> None:
        if not self._folder.noted("enqueued"):
            pdfs, rows = self._plan.pdfs, self._plan.rows
            self._screen.say(
                f"a backlog: {some(len(pdfs), 'PDF export')}, {some(len(rows), 'row')}, nearly all {GREEDY}'s"
            )
            await self._ask(pdfs + rows)
        # A driver that was killed before its outage could be seen must not let the webhooks slip through before it.
        self._provider.down = self._folder.noted("resumed") and not self._outage_was_seen()
        for worker in [await self._fleet.start() for _ in range(WORKERS)]:
            await self._fleet.live_child(worker)
        await together(self._emails(), self._outage(), self._deployment())
        # From here on nothing is asked for again: what the operator discards must stay away.
        self._folder.note("enqueued")
        await self._drained()
        await self._review()
        await self._drained()

    # -- asking for work

    async def _ask(self, wanted: Sequence[Wanted]) -> list[JobHandle[Any]]:
        """Enqueue under the plan's ids: a repeated enqueue, after a timeout or a kill, is the same job."""
        jobs = [app.tasks[each.task].job(**each.args) for each in wanted]
        for left in reversed(range(TRIES)):
            try:
                return await app.enqueue_many(jobs, atomic=False, ids=[each.id for each in wanted])
            except StoreError as error:
                if not (error.retryable and left):
                    raise
                self._screen.say(f"the store is busy ({error.code}); trying again")
        raise AssertionError("unreachable")

    async def _emails(self) -> None:
        """New users come all the time: a few emails every tick."""
        emails = () if self._folder.noted("enqueued") else self._plan.emails
        rate = min(EMAILS_PER_S, len(self._plan.emails) / SHORTEST_STREAM_S)
        size = max(1, round(rate * TICK_S))
        for start in range(0, len(emails), size):
            handles = await self._ask(emails[start : start + size])
            for share, mark in self._marks.items():
                if start >= share * len(emails):
                    mark.set()
            if not all(handle.existing for handle in handles):
                await asyncio.sleep(TICK_S)
        for mark in self._marks.values():
            mark.set()

    async def _outage(self) -> None:
        """The webhooks' provider fails for a while; half of the deliveries come before, half meanwhile."""
        half = len(self._plan.webhooks) // 2
        if self._folder.noted("enqueued"):
            return
        await self._ask(self._plan.webhooks[:half])
        await self._marks[OUTAGE_FROM].wait()
        if not self._outage_was_seen():
            self._provider.down = True
            self._screen.say("provider down: it answers 503 to every webhook", "red")
        await self._ask(self._plan.webhooks[half:])
        if self._provider.down:
            await self._observer.until(lambda: self._observer.breaker_open)
            await asyncio.sleep(OUTAGE_S)
            self._folder.note("outage.over")
            self._provider.down = False
            refused = some(self._provider.refused, "call")
            self._screen.say(f"provider up again: the breaker admitted only {refused} through in vain")
        await self._observer.until(lambda: not self._observer.breaker_open)

    def _outage_was_seen(self) -> bool:
        """True once the breaker has opened, be it under an earlier driver."""
        return self._folder.noted("outage.over") or self._folder.noted("breaker.opened")

    # -- what happens to the workers

    async def _deployment(self) -> None:
        """One worker is replaced in good order, one loses its child, one is lost whole."""
        await self._marks[DEPLOYMENT_FROM].wait()
        if self._folder.noted("deployed"):
            return
        self._screen.say("a deployment begins", "bold")
        old = await self._fleet.one()
        new = await self._fleet.start()
        await self._fleet.live_child(new)
        code = await self._fleet.terminate(old)
        self._folder.note("worker.terminated", code=code)
        self._screen.say(f"{old.name} got SIGTERM: finished or handed back its jobs, exit code {code}")
        await self._kill_a_child()
        await self._kill_a_worker()
        self._folder.note("deployed")

    async def _kill_a_child(self) -> None:
        worker = await self._fleet.one()
        child = await self._fleet.busy_child(worker)
        if child is None:
            return  # someone else was faster
        pid = self._fleet.kill_child(child)
        self._folder.note("worker.killed", what="child", pid=pid)
        self._screen.say(
            f"worker killed: SIGKILL for the child of {worker.name} with {some(child.running, 'job')}", "red"
        )
        if await self._fleet.live_child(worker, other_than=child.session) is not None:
            self._screen.say(f"{worker.name} handed back the jobs of its dead child and started another")

    async def _kill_a_worker(self) -> None:
        worker = await self._fleet.one()
        child = await self._fleet.busy_child(worker)
        self._folder.note("worker.killed", what="all", pid=worker.pid)
        self._fleet.kill_all_of(worker)
        running = 0 if child is None else child.running
        self._screen.say(
            f"worker killed: SIGKILL for all of {worker.name} with {some(running, 'job')}, a power cut", "red"
        )
        self._screen.say("no process is left to hand back those jobs: they return when the lease ends, within 20 s")

    # -- the end

    async def _drained(self) -> None:
        await self._observer.until(lambda: self._observer.live == 0)

    async def _review(self) -> None:
        """A person looks at the dead letters: some are corrected and run again, some discarded, some stay."""
        if not self._folder.noted("review.began"):
            causes = await self._operator.causes()
            for cause in causes:
                self._screen.say(
                    f"dead letters: {cause.count} × {cause.task}: {cause.error}: {cause.message}", "yellow"
                )
            self._folder.note("review.began", dead=self._observer.counts.total(State.dead), causes=len(causes))
        for wanted in await self._still_dead(self._plan.fated("corrected")):
            await self._operator.retry([wanted.id], patch=wanted.fix, reason="address corrected")
        gone = await self._still_dead(self._plan.fated("discarded"))
        if gone:
            await self._operator.discard([wanted.id for wanted in gone], reason="the customer has left")
        self._folder.note("reviewed")
        self._screen.say("review: addresses corrected and sent again, two discarded, the rest left for tomorrow")

    async def _still_dead(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        views = await app.store.get([id_bytes(each.id) for each in wanted])
        pairs = zip(wanted, views, strict=True)
        return [each for each, view in pairs if view is not None and view.state is State.dead]

    async def _explain_the_rest(self) -> None:
        page = await app.store.find(Query(states=LIVE, limit=3))
        for view in page.jobs:
            self._screen.say(f"{view.lane.task} {id_text(view.id)}: {await self._operator.explain(view.id)}", "red")


async def together(*acts: Coroutine[Any, Any, None]) -> None:
    """Run the acts side by side; the first that fails ends the others, and its error is the one that is seen."""
    try:
        async with asyncio.TaskGroup() as group:
            for act in acts:
                group.create_task(act)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed
