"""Limits over a fleet that is killed: rates, ceilings, budgets and 429s hold on every engine."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.state import State
from limpet.core.limits.period import HOUR_MS, began_ms
from limpet.core.tasks.task import build_job
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from limpet_contract.making import make_job
from tests.chaos import limit_jobs
from tests.chaos.conftest import on, on_every_engine
from tests.chaos.field import Field, WorkerProcess, kill
from tests.chaos.limiting import FastClock

WORKERS = 4
KILLS = 12
STEP_MS = 500
CUSTOMERS = 5
PER_MINUTE = 10
DOLLAR = 1_000_000
END = 1 << 63  # behind every token and every line


class Line(NamedTuple):
    word: str
    id: str
    token: int
    at_ms: int  # when it was claimed
    key: str
    number: int
    seen: int  # how much of the trace was there before it was asked for
    place: int  # where in the trace this line begins


def history(field: Field) -> list[Line]:
    lines, place = [], 0
    for line in field.trace_file.read_text().splitlines(keepends=True):
        word, id, token, at_ms, key, number, seen = line.split()
        lines.append(Line(word, id, int(token), int(at_ms), key, int(number), int(seen), place))
        place += len(line)
    return lines


def at_half_past() -> int:
    now_ms = time.time_ns() // 1_000_000
    return began_ms("hour", now_ms) + HOUR_MS * 3 // 2


@on("postgres", why="its claims overtake settlements; the contract has the arithmetic of all")
@pytest.mark.timeout(900)
async def test_rates_and_budgets_hold_through_an_hour_of_kills(field: Field, tmp_path: Path) -> None:
    clock_file, ids, start_ms = tmp_path / "clock", IdMaker(), at_half_past()
    clock = FastClock(clock_file)
    clock.now_ms = start_ms

    def hire() -> WorkerProcess:
        seed = str(field.rng.randrange(1 << 30))
        return field.run("-m", "tests.chaos.limiting", field.url, str(clock_file), str(field.trace_file), seed)

    rules = [GateRule(f"limit:c:{n}", interval_us=60_000_000 // PER_MINUTE, burst=PER_MINUTE) for n in range(CUSTOMERS)]
    rules.append(GateRule("limit:usd", unit="usd", cap=DOLLAR, period="hour"))
    rules.append(GateRule("limit:slow", interval_us=18_000_000, burst=3))  # money is spent at all times, not at once
    rated = [
        make_job(ids.make(start_ms), {"keys": (f"c:{n % CUSTOMERS}",)}) for n in range(CUSTOMERS * PER_MINUTE * 70)
    ]
    paid = [
        make_job(ids.make(start_ms), {"limits": ("usd", "slow"), "costs": {"usd": field.rng.randint(5, 40) * 1_000}})
        for _ in range(400)
    ]
    await field.store.enqueue([*rated, *paid], rules, now_ms=start_ms)
    workers = [hire() for _ in range(WORKERS)]
    await field.until("all have begun", lambda: len(field.trace()) > 50, 60)
    size = 0
    kill_at = [HOUR_MS * n // (KILLS + 1) for n in range(1, KILLS + 1)]
    while clock.now_ms < start_ms + HOUR_MS:
        clock.now_ms += STEP_MS
        if kill_at and clock.now_ms - start_ms >= kill_at[0]:
            kill_at.pop(0)
            place = await spending(field, workers, {job.id for job in paid})
            kill(workers[place].pid)
            await workers[place].ended()
            workers[place] = hire()
        if clock.now_ms % 10_000 == 0:  # time does not run away from a fleet on a busy machine
            size = await longer(field, size)
        await field.store.expire(now_ms=clock.now_ms)
    for worker in workers:
        kill(worker.pid)
        await worker.ended()

    lines = history(field)
    for n in range(CUSTOMERS):
        starts = sorted(line.at_ms for line in lines if (line.word, line.key) == ("start", f"c:{n}"))
        assert len(starts) > PER_MINUTE * 40, f"the rate of c:{n} was not used: {len(starts)} starts"
        check_rate(starts)
    hour_ms = began_ms("hour", start_ms)
    check_budget(lines, hour_ms, hour_ms + HOUR_MS)
    bench = Bench(field.store, Clock(clock.now_ms))
    await bench.check_books()  # with what those who were killed still hold
    healer = bench.hand("healer")
    for _ in range(90):
        if not (await field.store.count()).total(State.running):
            break
        await bench.sweep(1_000, healer)
    await bench.check_books()


async def spending(field: Field, workers: list[WorkerProcess], paid: set[bytes]) -> int:
    """The place of the worker that holds most of the jobs that cost money, so that a kill meets them."""
    held = [await field.store.held(f"w{worker.pid}") for worker in workers]
    counts = [sum(one.id in paid for one in jobs) for jobs in held]
    return field.rng.choice([place for place, count in enumerate(counts) if count == max(counts)])


async def longer(field: Field, size: int) -> int:
    """Wait until the trace is longer than that; how long it is."""
    await field.until("somebody works", lambda: field.trace_file.stat().st_size > size)
    return field.trace_file.stat().st_size


def check_rate(starts: list[int]) -> None:
    """In any span of time no more than the bucket holds and time brings."""
    for first, since_ms in enumerate(starts):
        for last in range(first + PER_MINUTE, len(starts)):
            span_ms = starts[last] - since_ms
            assert last - first + 1 <= PER_MINUTE + span_ms * PER_MINUTE / 60_000, (first, last, span_ms)


def check_budget(lines: list[Line], *hours: int) -> None:
    """What is admitted never exceeds the cap, whatever earlier jobs turned out to cost; nearly all of it is used."""
    paid = [line for line in lines if line.key == "usd"]
    # Of two claims the one with the larger token came later, whatever the clocks of those who asked were.
    first = [min(line.token for line in paid if line.at_ms >= hour) for hour in hours]
    ended = {(line.id, line.token) for line in paid if line.word == "cost"}
    died = [line for line in paid if line.word == "start" and (line.id, line.token) not in ended]
    assert len(died) >= KILLS // 4, "the kills met hardly any of those who spend"
    for since, until in zip(first, [*first[1:], END], strict=True):
        mine = [line for line in paid if since <= line.token < until]
        starts = [line for line in mine if line.word == "start"]
        for start in starts:
            before = [line for line in starts if line.place <= start.place]
            reserved = sum(known(mine, before, less=start.place))
            assert reserved <= DOLLAR, f"{reserved} were reserved at once"
            before = [line for line in before if line.place < start.seen or line.token == start.token]
            spent = sum(known(mine, before, less=start.place, cost=start.seen))
            assert spent <= DOLLAR, f"{spent} were spent, what was admitted last included"
        # Some that run when the hour ends, and have reserved all that was left, cost less than that.
        total = sum(known(mine, starts, cost=END))
        assert total >= DOLLAR * 3 // 4, f"only {total} were used"


def known(lines: list[Line], starts: list[Line], **before: int) -> Collection[int]:
    """What each of `starts` took of the budget: what is reserved, or what a word says that stands before a place."""
    amounts = {(line.id, line.token): line.number for line in starts}
    for line in lines:
        if line.place < before.get(line.word, 0) and (line.id, line.token) in amounts:
            amounts[line.id, line.token] = line.number
    return amounts.values()


@on("redis", why="one engine in a day; concurrency 1 is in the contract of all")
@pytest.mark.timeout(900)
async def test_one_at_a_time_never_sees_two(field: Field) -> None:
    ways = ("worker", "child", "another") * 2  # the whole worker of the holder, its process alone, or somebody else's
    await field.look_after()
    ids = await put(field, "alone", [{"lingers": number % 10 == 0} for number in range(10 * len(ways))])
    workers = [hire(field) for _ in range(WORKERS)]
    await field.until("all are there", partial(staffed, field))
    killed: dict[int, int] = {}  # pid → when it was killed
    for number, way in enumerate(ways):
        await field.until("somebody lingers", partial(lingered, field, number))
        _, id, _, process = field.trace("lingers")[number]
        holder = next((worker for worker in workers if int(process) in worker.children()), None)
        if holder is None:
            break  # there were two, and it was struck as another
        struck = holder if way != "another" else next(worker for worker in workers if worker is not holder)
        for pid in [int(process)] if way == "child" else struck.tree():
            kill(pid)
            killed[pid] = time.time_ns()
        if way != "child":  # of which the supervisor starts another
            await struck.ended()
            workers[workers.index(struck)] = hire(field)
        if way == "another":
            field.trace_file.with_name(f"{field.trace_file.name}.{id}").touch()
    await field.finished(len(ids), 60)
    check_alone(field.trace(), killed)
    assert {(view.state, view.attempt) for view in await field.views(ids)} == {(State.succeeded, 1)}
    assert sum(view.lost for view in await field.views(ids)) >= len(ways) - ways.count("another")


def lingered(field: Field, count: int) -> bool:
    return len(field.trace("lingers")) > count


def check_alone(lines: list[list[str]], killed: dict[int, int]) -> None:
    """Nobody enters while another is inside and lives."""
    inside: dict[str, int] = {}  # job → in which process
    for word, id, at, process in sorted(lines, key=lambda line: int(line[2])):
        if word == "leaves":
            del inside[id]
        elif word == "enters":
            others = {job: who for job, who in inside.items() if killed.get(who, END) > int(at)}
            assert not others, f"{id} entered while {others} was inside"
            inside[id] = int(process)


@on_every_engine
@pytest.mark.timeout(900)
async def test_a_429_stops_every_worker_and_costs_no_attempt(field: Field) -> None:
    for _ in range(WORKERS):
        hire(field)
    await field.until("all are there", partial(staffed, field))
    # One call of the first provider is refused in the midst of many, for an hour.
    calls = [{"provider": number % 4, "pushes_back": number == 20} for number in range(440)]
    ids = await put(field, "call", calls)
    await field.until("the 429 is told", partial(held_back, field))
    sessions = await field.store.sessions()
    claimed = {id_text(one.id) for view in sessions for one in await field.store.held(view.session)}
    before = len(field.trace("calls:0"))
    field.let_go()
    await field.until("those of other providers go on", partial(called, field, {1: 110, 2: 110, 3: 110}))
    after = field.trace("calls:0")[before:]
    assert {id for _, id, *_ in after} <= claimed, "after a 429 others went on"
    assert len(field.trace("calls:0")) < 110
    await field.store.change_gates([GateChange("limit:provider:0", reset=True)])  # the hour is over
    await field.finished(len(ids), 60)
    assert {(view.state, view.attempt) for view in await field.views(ids)} == {(State.succeeded, 1)}


async def held_back(field: Field) -> bool:
    """Whether the store knows of the 429."""
    return any(gate.held_until_ms for gate in await field.store.gates(keys=["limit:provider:0"]))


def called(field: Field, times: dict[int, int]) -> bool:
    return all(len({id for _, id, *_ in field.trace(f"calls:{one}")}) >= count for one, count in times.items())


@on_every_engine
@pytest.mark.timeout(900)
async def test_a_429_is_known_to_every_worker_within_100_ms(field: Field) -> None:
    """Of several one is enough: what is late by itself is so each time, and a busy machine is late now and then."""
    for _ in range(WORKERS):
        hire(field)
    await field.until("all are there", partial(staffed, field))
    models = range(8)
    # Each refuses one in the midst of many, one after the other.
    asked = [{"model": one, "pushes_back": number == 5 * (one + 1)} for number in range(80) for one in models]
    ids = await put(field, "ask", asked)
    await field.finished(len(ids), 60)
    lines = sorted((int(at), word) for word, _, at, _ in field.trace())
    late_ms = []
    for model in models:
        (at,) = (at for at, word in lines if word == f"refused:{model}")
        # The hold lasts 600 ms and more: whoever asks between is late.
        after = [(then - at) / 1e6 for then, word in lines if word == f"asks:{model}" and at < then < at + 500e6]
        late_ms.append(max(after, default=0.0))
    assert min(late_ms) <= 100, f"after a 429 others went on for {late_ms} ms"


async def staffed(field: Field) -> bool:
    """True when all workers are there. The store is looked after until then."""
    await field.store.expire()
    return len(await field.store.sessions()) == WORKERS


async def put(field: Field, task: str, values: Sequence[Mapping[str, object]]) -> list[bytes]:
    spec, made = limit_jobs.app.parts().tasks[task], IdMaker()
    jobs = [build_job(spec, dict(one), id=made.make(time.time_ns() // 1_000_000)) for one in values]
    rules = {rule.key: rule for _, declared in jobs for rule in declared}
    await field.store.enqueue([job for job, _ in jobs], list(rules.values()))
    return [job.id for job, _ in jobs]


def hire(field: Field) -> WorkerProcess:
    # On a busy machine one that lives may be silent for a second or two, and must not be taken for dead.
    return field.start(app="tests.chaos.limit_jobs:app", ttl_ms=2_500)
