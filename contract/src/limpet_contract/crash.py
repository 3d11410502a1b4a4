"""Crash points: a story that calls every verb is broken off at its n-th call, for every n, and must be recoverable.

Each call fails twice over: once never sent, once done but unheard. Then either the caller repeats the
call as it was, and all must end as if nothing had happened; or the caller is dead, and a fresh worker,
a janitor and a producer that repeats its enqueues must find everything, once.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, cast

from limpet.core.errors import StoreUnreachable
from limpet.core.gate import GateChange
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import FINISHED, State
from limpet.stores.base import Examines, Store
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.hand import Hand
from limpet_contract.harness import Harness
from limpet_contract.story import Story

Mode = Literal["never sent", "unheard"]
Caller = Literal["repeats", "dies"]

MODES: tuple[Mode, ...] = ("never sent", "unheard")
CALLERS: tuple[Caller, ...] = ("repeats", "dies")

# `open` and `close` are the business of the harness.
VERBS = frozenset(
    name
    for protocol in (Store, Examines)
    for name, member in vars(protocol).items()
    if inspect.iscoroutinefunction(member) and name not in ("open", "close")
)


class Unreliable:
    """A store whose n-th verb fails: before it is sent, or after it was done."""

    def __init__(self, store: Store, fail_at: int, mode: Mode, caller: Caller) -> None:
        self._store = store
        self._fail_at = fail_at
        self._mode = mode
        self._caller = caller
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        member = getattr(self._store, name)
        if name not in VERBS:
            return member

        async def verb(*args: object, **options: object) -> object:
            try:
                return await self._send(name, member, *args, **options)
            except StoreUnreachable:
                if self._caller == "dies":
                    raise
                return await self._send(name, member, *args, **options)

        return verb

    async def _send(
        self, name: str, member: Callable[..., Awaitable[object]], *args: object, **options: object
    ) -> object:
        self.calls.append(name)
        fails = len(self.calls) == self._fail_at
        if fails and self._mode == "never sent":
            raise StoreUnreachable("the line is dead", verb=name)
        answer = await member(*args, **options)
        if fails:
            raise StoreUnreachable("the answer was lost", verb=name)
        return answer


async def tell(harness: Harness, fail_at: int, mode: Mode, caller: Caller) -> tuple[Bench, Story, list[str]]:
    """Tell the story on a fresh store with one failure; the bench that is left, the story and the calls it made."""
    bench = await Bench.open(harness)
    line = Unreliable(bench.store, fail_at, mode, caller)
    story = Story(Bench(cast(Store, line), bench.clock))
    try:
        await story.tell()
    except StoreUnreachable:
        assert caller == "dies"
    return bench, story, line.calls


async def calls_of_the_story(harness: Harness) -> list[str]:
    """The verbs of the undisturbed story, in order; their number is the number of crash points."""
    try:
        return (await tell(harness, 0, "never sent", "dies"))[2]
    finally:
        await harness.close()


async def survives(harness: Harness, fail_at: int, mode: Mode, caller: Caller) -> None:
    """Break the story off at one call, recover, and check that nothing was lost and nothing done twice."""
    try:
        bench, story, _ = await tell(harness, fail_at, mode, caller)
        await ends_well(bench, story, caller)
    finally:
        await harness.close()


async def ends_well(bench: Bench, story: Story, caller: Caller) -> None:
    """What must be true after a story that was broken off somewhere: all is as told, or others can go on from there."""
    await bench.check_books()
    if caller == "repeats":
        await _is_as_told(bench, story)
    else:
        await _recover(await bench.other(), story)


async def _is_as_told(bench: Bench, story: Story) -> None:
    """Every job is where the undisturbed story leaves it."""
    names = list(story.ENDS)
    states = dict(zip(names, await bench.states([story.ids[name] for name in names]), strict=True))
    assert states == story.ENDS
    told = await story.told(bench)
    assert told == story.TOLD, "hooks were told of other ends"
    assert (await bench.store.count()).enqueued == len(names) + told.total()


async def _recover(bench: Bench, story: Story) -> None:
    """What happens after a crash in real life: leases run out, callers repeat themselves, others do the work."""
    healer = bench.hand("healer")
    await _leases_run_out(bench, healer)
    await story.produce(bench)
    await story.signal(bench)
    for gate in await bench.store.gates():
        await bench.change(GateChange(gate.key, resume=True, reset=True))
    await bench.check_books()
    done = Counter(story.acknowledged)
    for _ in range(50):
        jobs: list[Claimed] = await healer.claim(10)
        answers = await healer.succeed(*jobs) if jobs else []
        done.update(job.id for job, answer in zip(jobs, answers, strict=True) if answer.answer == "done")
        if not jobs and not (await bench.store.count()).total(State.scheduled):
            break
        await bench.sweep(0 if jobs else 5_000, healer)
    assert max(done.values()) == 1, "a job succeeded twice"
    await _all_accounted_for(bench, story)


async def _leases_run_out(bench: Bench, healer: Hand) -> None:
    for _ in range(60):
        if not (await bench.store.count()).total(State.running):
            return
        await bench.sweep(SWEEP_MS, healer)
    raise AssertionError("the lease of a dead caller was never taken back")


async def _all_accounted_for(bench: Bench, story: Story) -> None:
    await bench.check_books()
    counts, told = await bench.store.count(), await story.told(bench)
    assert counts.enqueued == len(story.ENDS) + told.total(), "jobs were lost or doubled"
    names = list(story.ENDS)
    for name, state in zip(names, await bench.states([story.ids[name] for name in names]), strict=True):
        assert state is None or state in FINISHED, f"{name} is stuck in {state}"
        assert told[name] or state not in (State.dead, State.cancelled), f"no hook has heard that {name} is {state}"
    gone = sum(1 for state in await bench.states(list(story.ids.values())) if state is None)
    ended = counts.succeeded + counts.cancelled + counts.discarded + counts.total(State.dead)
    pruned = ended - told.total() - (len(names) - gone)
    assert pruned == gone, "a job has vanished without a trace"
    assert not [gate.key for gate in await bench.store.gates() if gate.used or gate.probe_token], "a slot has leaked"
