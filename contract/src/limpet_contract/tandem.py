"""A store and the model in tandem: every move is made on both, and their answers must be the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from limpet.core.endings.hook import QUEUE, Ending, Hook
from limpet.core.endings.transition import Lose, Release, Transition
from limpet.core.gate import Gate, GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import LEAST_URGENT, Job, Lane
from limpet.core.jobs.lease import Claimed, ClaimOptions, ClaimRequest, Note, Serves, Signal, Takes
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import JobView, Retention, Term
from limpet.stores.base import NOTHING_SPENT
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.hand import ENDINGS, NONE, Hand, next_seq
from limpet_contract.harness import Harness
from limpet_contract.headlines import Headlines
from limpet_contract.ledger import PERIOD_MS
from limpet_contract.model import NOTHING_SAID, Model
from limpet_contract.model_job import ModelJob

TTL_MS = 4_000
TAKES = Takes(2, 3)
LOST_S = 50  # a message that has not come by then never will
PATIENCE_MS = TTL_MS + 17_000  # a silent session's jobs are back by then, even after a gap (D6)


class Tandem:
    """Both riders, the workers that are alive, and everything that was ever handed out."""

    def __init__(self, harness: Harness, bench: Bench, rules: Sequence[GateRule]) -> None:
        self.harness = harness
        self.bench = bench
        self.rules = rules
        self.model = Model()
        self.headlines = Headlines()
        self.gates: dict[str, Gate] = {}  # after the last step that may have made news of them
        self.made: list[Job] = []
        self.given: list[tuple[Claimed, str]] = []  # with the session that got it
        self.alive: dict[str, Hand] = {}
        self.silent: dict[str, int] = {}  # session → when it beat last
        self.asleep: dict[str, ClaimRequest] = {}  # session → what it found nothing for, since when it got nothing
        self.numbers: dict[str, int] = {}  # session → the number of the last job that it was handed
        self.hooked = False  # there is a hook for every end; its jobs wait, since their queue is paused
        self._hired = 0
        self._looks = 0

    @classmethod
    async def open(cls, harness: Harness, rules: Sequence[GateRule]) -> Tandem:
        return cls(harness, await Bench.open(harness), rules)

    @property
    def now_ms(self) -> int:
        return self.bench.clock.now_ms

    def held_by(self, session: str) -> list[ModelJob]:
        return [job for job in self.model.jobs.values() if job.session == session]

    def held(self) -> list[tuple[Claimed, str]]:
        """What was handed out and is still under its token."""
        tokens = {(job.id, job.token) for job in self.model.jobs.values() if job.token}
        return [entry for entry in self.given if (entry[0].id, entry[0].token) in tokens]

    def overtaken(self) -> list[tuple[Claimed, str]]:
        """What was handed out and is by now under a younger token: the most dangerous stale holders."""
        tokens = {job.id: job.token for job in self.model.jobs.values() if job.token}
        return [entry for entry in self.given if tokens.get(entry[0].id, 0) > entry[0].token]

    def stopped(self) -> list[bytes]:
        """Jobs that a person may bring back: dead, asleep, or waiting for a time or an event."""
        jobs = self.model.jobs.values()
        asleep = [job.id for job in jobs if job.state is State.scheduled and job.due_at_ms > self.now_ms]
        return [job.id for job in jobs if job.state is State.dead] or asleep

    async def hook(self) -> None:
        """From now on every end is told to a hook."""
        hook = Hook(Lane(QUEUE, "hook"), states=tuple(sorted(FINISHED)))
        await self.bench.store.put_control(hook.control())
        await self.bench.change(GateChange(f"queue:{QUEUE}", pause=Pause("walk", "", self.now_ms)))
        self.hooked = True

    # -- producers

    async def put(self, jobs: Sequence[Job]) -> None:
        # Rules come with the jobs, as those of an app do: a store may forget them while no job is under them.
        answers = await self.bench.put(*jobs, rules=self.rules)
        self.model.ledger.declare(self.rules)
        expected = [self.model.enqueue(job, self.now_ms) for job in jobs]
        assert [(answer.id, answer.existing) for answer in answers] == expected
        self.made += [job for job, answer in zip(jobs, answers, strict=True) if not answer.existing]

    async def put_alone(self, job: Job) -> None:
        """One job without rules: it may be handed to a session that sleeps."""
        (answer,) = await self.bench.put(job)
        assert (answer.id, answer.existing) == self.model.enqueue(job, self.now_ms)
        if answer.existing:
            return
        self.made.append(job)
        if answer.state is State.running:
            await self._follow_hand_off(job.id)

    async def _follow_hand_off(self, id: bytes) -> None:
        view = await self.bench.view(id)
        assert view.session in self.asleep, f"{view} was handed to a session that does not sleep"
        self.model.handed(id, view.token or 0, self.asleep[view.session], self.now_ms)
        self.numbers[view.session] += 1
        if (hand := self.alive.get(view.session)) is None:
            assert view.session in self.silent  # which takes it with it, until the sweep
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOST_S
        while not (jobs := await hand.handed()):  # it was woken for something else before
            assert loop.time() < until_s, f"the message with {view} was lost"
        (handed,) = jobs
        assert (handed.number, handed.job.id, handed.job.token) == (self.numbers[hand.session], id, view.token)
        if handed.awake:
            del self.asleep[hand.session]
        self.given.append((handed.job, hand.session))

    async def put_again(self, job: Job) -> None:
        assert (await self.bench.put(job))[0].existing

    # -- workers

    async def hire(self, serves: Serves) -> Hand:
        self._hired += 1
        takes = TAKES if self.bench.store.features.hands_off else NONE
        hand = Hand(self.bench.store, self.bench.clock, f"w{self._hired}", serves, TTL_MS, takes)
        pulse = await hand.beat()
        assert pulse.fresh
        self.numbers[hand.session] = pulse.handed
        self.alive[hand.session] = hand
        return hand

    async def beat(self, hand: Hand) -> None:
        pulse = await hand.beat()
        wanted = {(job.id, job.token) for job in self.held_by(hand.session) if job.cancel_requested}
        assert set(pulse.cancels) == wanted
        assert not pulse.fresh
        assert pulse.handed == self.numbers[hand.session], "a job was handed unseen"

    async def claim(
        self,
        hand: Hand,
        limit: int,
        slots: int,
        *,
        least_urgent: int = LEAST_URGENT,
        aged: int = 0,
        most_urgent: int = 0,
        unheard: bool = False,
    ) -> list[Claimed]:
        """A claim, asked again as it was when the first answer went unheard."""
        before, seq = await self.views(), next_seq()
        gates = self.gates = await self._look()
        wants = self._wants(gates)
        options = ClaimOptions(least_urgent, aged, most_urgent)
        request = ClaimRequest(hand.session, hand.serves, limit, slots, seq, "fetcher", options, hand.takes)
        ask = partial(self.bench.store.claim, request, now_ms=self.now_ms)
        answer = await ask()
        given = list(answer.jobs)
        if given and unheard:
            again = await ask()
            assert sorted((job.id, job.token) for job in again.jobs) == sorted((job.id, job.token) for job in given)
        await self._follow_expiry()
        self._check_breakers(gates, given)
        after = await self._look()
        wanted = wants, self._wants(after)
        self.model.claimed(given, request, before, wants=wanted, all_given=not answer.again, now_ms=self.now_ms)
        self._expect_news(after)
        if options.takes_all and given:
            self.asleep.pop(hand.session, None)
        elif options.takes_all and not answer.again:
            self.asleep[hand.session] = request
        newest = {job.id: job.token for job, _ in self.given}
        assert all(job.token > newest.get(job.id, 0) for job in given), "a token did not grow"
        self.given += [(claimed, hand.session) for claimed in given]
        return given

    def _check_breakers(self, before: Mapping[str, Gate], given: Sequence[Claimed]) -> None:
        """An open breaker admits no job, a half-open one its one probe."""
        for gate in before.values():
            through = [job for job in given if gate.key in (*job.lane.class_gates, *job.lane.lane_gates)]
            if gate.open_until_ms > self.now_ms or (gate.breaker_open and gate.probe_token):
                assert not through, f"{gate.key} is open and let a job through"
            elif gate.breaker_open:
                assert [job.probe for job in through] in ([], [True]), f"{gate.key} let more through than its probe"

    async def settle(
        self,
        hand: Hand,
        transitions: Sequence[Transition],
        said: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        *,
        unheard: bool = False,
    ) -> None:
        """A settlement in which jobs have `said` what they cost."""
        seq, now_ms = next_seq(), self.now_ms
        expected = [self.model.settle(each, now_ms, said.get(each.id, NOTHING_SAID)) for each in transitions]
        answers = await hand.settle(*transitions, seq=seq, spent=said)
        assert [answer.answer for answer in answers] == expected
        if unheard:
            assert await hand.settle(*transitions, seq=seq, spent=said) == answers
        self._expect_news(await self._look())

    async def save(self, claimed: Claimed, note: Note) -> None:
        answer = await self.bench.store.save(claimed.id, claimed.token, note, now_ms=self.now_ms)
        assert answer == self.model.save(claimed.id, claimed.token, note)

    async def fall_silent(self, hand: Hand) -> None:
        await self.beat(hand)
        del self.alive[hand.session]
        self.silent[hand.session] = self.now_ms

    async def leave(self, hand: Hand) -> None:
        for job in self.held_by(hand.session):
            assert self.model.settle(Release(job.id, job.token, started=True), self.now_ms) == "done"
        await hand.leave()
        del self.alive[hand.session]
        self.asleep.pop(hand.session, None)

    async def die_supervised(self, hand: Hand) -> None:
        """A supervisor sees the worker die and hands back what it held."""
        held = await self.bench.store.held(hand.session)
        mine = self.held_by(hand.session)
        assert {(one.id, one.token, one.lost) for one in held} == {(job.id, job.token, job.lost) for job in mine}
        await self.settle(hand, [Lose(one.id, one.token) for one in held])
        await self.leave(hand)

    # -- people

    async def cancel(self, id: bytes, *, force: bool) -> None:
        answer = await self.bench.cancel(id, force=force)
        assert answer == [self.model.cancel(id, force=force, now_ms=self.now_ms)]

    async def signal(self, signals: Sequence[Signal]) -> None:
        answers = await self.bench.signal(*signals)
        assert answers == [self.model.signal(signal, self.now_ms) for signal in signals]

    async def retry(self, id: bytes, forget: tuple[str, ...] = ()) -> None:
        assert await self.bench.retry(id, forget=forget) == [self.model.retry(id, forget, self.now_ms)]

    async def discard(self, id: bytes) -> None:
        assert await self.bench.store.discard([id], now_ms=self.now_ms) == self.model.discard(id, self.now_ms)

    async def prune(self) -> None:
        """Remove what has ended well or was cancelled; the store may take as many as it likes."""
        await self.bench.store.prune(Retention(succeeded_ms=0, cancelled_ms=0), now_ms=self.now_ms)
        views = await self.views()
        for id in [id for id, job in self.model.jobs.items() if id not in views and job.state is not State.dead]:
            self.model.remove(id, self.now_ms)
        self.model.ledger.forget(await self._look())

    async def pause_or_resume(self, queue: str) -> None:
        if queue in self.model.paused:
            await self.bench.change(GateChange(f"queue:{queue}", resume=True))
            self.model.paused.discard(queue)
        else:
            await self.bench.change(GateChange(f"queue:{queue}", pause=Pause("walk", "", self.now_ms)))
            self.model.paused.add(queue)

    async def change(self, *changes: GateChange) -> None:
        """An operator changes limits, each in a step of its own."""
        for change in changes:
            await self.bench.change(change)
            self.model.ledger.change(change, self.now_ms)
            self._expect_news(await self._look())

    async def reopen(self) -> None:
        """Every session continues through another handle, as after a restart."""
        self.bench.store = await self.harness.reopen(self.bench.store)
        for hand in self.alive.values():
            hand.store = self.bench.store
            await self.beat(hand)
            # It hears in another place from its next claim on: a job that is handed before would not reach it.
            assert (await hand.ask(0)).jobs == ()
            self.asleep.pop(hand.session, None)

    # -- time

    async def sweep(self, ms: int) -> None:
        await self.bench.sweep(ms, *self.alive.values())
        await self._notice()
        await self._follow_expiry()
        late = [job for job in self.model.jobs.values() if job.overdue(self.now_ms)]
        assert not late, f"{late[0]} waits though its time to start is over"
        self.bench.clock.advance(1)  # what was seen to have ended did so before what ends next

    async def outage(self, ms: int) -> None:
        """No session beats or sweeps; live sessions beat first when it is over."""
        self.bench.clock.advance(ms)
        for hand in self.alive.values():
            await self.beat(hand)

    async def _notice(self) -> None:
        """Follow the store in what it alone decides: when a silent session has lost its jobs."""
        views = await self.views()
        for job in [job for job in self.model.jobs.values() if job.token]:
            if views[job.id].token != job.token:
                assert job.session in self.silent, "a lease was taken from a session that lives"
                assert self.now_ms - self.silent[job.session] >= TTL_MS, "a lease was taken too early"
                assert self.model.settle(Lose(job.id, job.token), self.now_ms) == "done"

    async def _follow_expiry(self) -> None:
        """Follow the store in when it meets a job that was not started in time."""
        overdue = [job for job in self.model.jobs.values() if job.overdue(self.now_ms)]
        views = await self.views() if overdue else {}
        for job in overdue:
            if job.state not in FINISHED and views[job.id].state is State.cancelled:
                self.model.expire(job.id, self.now_ms)

    # -- gates

    async def _look(self) -> dict[str, Gate]:
        return {gate.key: gate for gate in await self.bench.store.gates()}

    def _spent(self) -> dict[str, int]:
        """What was spent of every budget, by the walk's own books."""
        ledger = self.model.ledger
        return {key: ledger.spent(key, self.now_ms) for key, rule in ledger.rules.items() if rule.cap is not None}

    def _wants(self, gates: Mapping[str, Gate]) -> dict[str, int]:
        """What the first job in line needs of a budget that it did not fit into in this minute, says the store."""
        minute_ms = self.now_ms - self.now_ms % PERIOD_MS
        budgets = [gate for gate in gates.values() if gate.rule.cap is not None and gate.period_ms == minute_ms]
        return {gate.key: gate.reserved_for for gate in budgets if gate.reserved_for}

    def _expect_news(self, after: dict[str, Gate]) -> None:
        """What a step that left these gates has made of them is in the log."""
        self.headlines.expect(self.gates, after, self._spent(), self.now_ms)
        self.gates = after

    # -- judging

    async def views(self) -> dict[bytes, JobView]:
        return _without_hooks(await self.bench.everything())

    async def agree(self) -> None:
        """Every job, every counter, every limit and every event is what the model says."""
        counts, jobs, gates = await self.bench.check_books()
        ours = _without_hooks(jobs)
        self.model.check(ours, self.now_ms)
        told = Counter(_told(view) for view in jobs if view.id not in ours)
        assert told == (self.model.told() if self.hooked else Counter()), "hooks were told of other ends"
        assert (counts.enqueued - told.total(), counts.discarded) == (self.model.enqueued, self.model.discarded)
        assert (counts.lost, counts.stale) == (self.model.lost, self.model.stale)
        self.model.ledger.check([gate for gate in gates if gate.key.startswith("limit:")], self.now_ms)
        self.headlines.compare(await self.bench.store.read("event", self.headlines.read_up_to, 1_000))
        await self._find_together()

    async def _find_together(self) -> None:
        """The jobs of one flow and those of one key are all found; which of them are asked for changes each time."""
        self._looks += 1
        flows = sorted({job.flow for job in self.model.jobs.values() if job.flow is not None})
        keys = sorted({job.unique for job in self.model.jobs.values() if job.unique is not None})
        if flows:
            flow = flows[self._looks % len(flows)]
            expected = sorted(job.id for job in self.model.jobs.values() if job.flow == flow)
            assert await self.bench.found(Term("flow", id_text(flow)), limit=len(expected)) == expected
        if keys:
            key = keys[self._looks % len(keys)]
            expected = sorted(job.id for job in self.model.jobs.values() if job.unique == key)
            assert await self.bench.found(Term("unique", key), limit=len(expected)) == expected

    async def heal(self) -> None:
        """When all faults are over and nothing costs too much, everything that can run does: nothing is stuck."""
        for queue in sorted(self.model.paused):
            await self.pause_or_resume(queue)
        for rule in [rule for rule in self.rules if rule.breaker is None]:
            generous = replace(rule, cap=rule.cap and 1 << 40, interval_us=rule.interval_us and 1_000)
            await self.change(GateChange(rule.key, rule=generous, reset=True))
        for hand in list(self.alive.values()):
            await self.fall_silent(hand)
        await self.sweep(2 * PATIENCE_MS)
        assert not self.held(), "a lease outlives its silent session"
        healer = await self.hire(Serves(capabilities=("gpu",)))
        await self.signal([Signal(job.id, "go", b"1") for job in self.model.jobs.values() if job.waits_for("go")])
        for _ in range(2 * len(self.made) + 10):
            given = await self.claim(healer, 8, 8)
            await self.settle(healer, [ENDINGS["succeed"](claimed) for claimed in given])
            await self.sweep(SWEEP_MS if given else 3 * SWEEP_MS)
            if all(job.state in FINISHED or job.state is State.blocked for job in self.model.jobs.values()):
                break
        await self.agree()
        assert not [job for job in self.model.jobs.values() if self._stuck(job)], "jobs wait though nothing stops them"

    def _stuck(self, job: ModelJob) -> bool:
        """True when a job has not ended though no ancestor that failed makes it wait for a person."""
        if job.state in FINISHED:
            return False
        while job.parent is not None:
            if job.if_parent_fails == "wait":
                return False
            parent = self.model.jobs.get(job.parent)
            if parent is None:
                break
            job = parent
        return True


def _without_hooks(jobs: Sequence[JobView]) -> dict[bytes, JobView]:
    return {view.id: view for view in jobs if view.lane.queue != QUEUE}


def _told(view: JobView) -> tuple[bytes, State]:
    """The end that a hook's job is told of."""
    ending = msgspec.json.decode(view.args, type=dict[str, Ending])["ending"]
    return id_bytes(ending.job), ending.state
