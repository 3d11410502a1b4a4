"""Behaviours of asking: get, find, resolve, queues, standing and sessions answer what is stored."""

from __future__ import annotations

import pytest

from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Compare, Query, Term
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

# Terms, and which of the four jobs of `shelf` they find.
TERMS: dict[str, tuple[tuple[Term, ...], set[int]]] = {
    "queue": ((Term("queue", "mail"),), {0, 1}),
    "task": ((Term("task", "send"),), {0, 1}),
    "tenant": ((Term("tenant", "acme"),), {0, 2}),
    "no tenant": ((Term("tenant", "acme", negated=True), Term("queue", "mail")), {1}),
    "tag": ((Term("tag", "vip"),), {0, 3}),
    "state": ((Term("state", "scheduled"),), {3}),
    "not a state": ((Term("state", "ready", negated=True),), {1, 3}),
    "error by type": ((Term("error", "RuntimeError"),), {1}),
    "error by message": ((Term("error", "it broke"),), {1}),
    "cause": ((Term("cause", "broke"),), {1}),
    "unique": ((Term("unique", "report:7"),), {2}),
    "priority": ((Term("priority", "3"),), {0}),
    "more urgent": ((Term("priority", "5", op="<"),), {0}),
    "as urgent or less": ((Term("priority", "5", op=">="),), {1, 2, 3}),
    "attempt": ((Term("attempt", "0", op=">"),), {1}),
    "lost": ((Term("lost", "0"),), {0, 1, 2, 3}),
    "wildcard": ((Term("queue", "m*l"),), {0, 1}),
    "wildcard at the end": ((Term("unique", "report:*"),), {2}),
    "argument": ((Term("args.to", "a@b.c"),), {0}),
    "deep argument": ((Term("args.user.id", "42"),), {2}),
    "a number": ((Term("args.n", "5", op=">"),), {0, 2}),
    "a number as text": ((Term("args.n", "7"),), {0, 1}),
    "a number or the same": ((Term("args.n", "7.0", op="<="), Term("args.n", "7.0", op=">=")), {0}),
    "a number beyond doubles": ((Term("args.n", "12345678901234567890122", op=">"),), {2}),
    "the same number beyond doubles": ((Term("args.n", "12345678901234567890123", op=">"),), set()),
    "a number below zero": ((Term("args.n", "-0.25", op="<"),), {3}),
    "no such number": ((Term("args.n", "5", op=">", negated=True),), {1, 3}),
    "a deep number": ((Term("args.user.id", "42", op=">="),), {2}),
    "an object is no number": ((Term("args.user", "0", op=">"),), set()),
    "finished": ((Term("finished", "0", op=">="),), {1}),
    "finished long ago": ((Term("finished", "0", op=">"),), set()),
    "unfinished, or long ago": ((Term("finished", "0", op="<=", negated=True),), {0, 2, 3}),
    "due soon": ((Term("due", "60000", op="<="),), {3}),
    "due sooner": ((Term("due", "60000", op="<"),), set()),
    "a word of a task": ((Term("word", "SEN"),), {0, 1}),
    "a word of an error's type": ((Term("word", "runtime"),), {1}),
    "a word of an error's message": ((Term("word", "it*BROKE"),), {1}),
    "no such word": ((Term("word", "e", negated=True),), set()),
    "two words": ((Term("word", "send"), Term("word", "broke")), {1}),
    "only * is a wildcard": ((Term("error", "it_broke"),), set()),
    "a percent sign is itself": ((Term("error", "it%broke"),), set()),
    "two terms": ((Term("queue", "mail"), Term("tag", "vip")), {0}),
    "nothing": ((Term("queue", "nowhere"),), set()),
}


async def shelf(bench: Bench) -> list[bytes]:
    """Four jobs that differ in everything a query can ask for."""
    jobs = [
        bench.job(
            queue="mail", task="send", tenant="acme", priority=3, tags=("vip", "eu"), args=b'{"to":"a@b.c","n":7}'
        ),
        bench.job(queue="mail", task="send", priority=9, args=b'{"to":"x@y.z","n":"7"}'),
        bench.job(
            task="report",
            tenant="acme",
            unique=Unique("report:7"),
            args=b'{"user":{"id":42},"n":12345678901234567890123}',
        ),
        bench.job(task="later", delay_ms=60_000, tags=("vip",), args=b'{"n":-0.5}'),
    ]
    await bench.put(jobs[1])
    hand = bench.hand()
    await hand.bury(await hand.take())
    await bench.put(jobs[0], jobs[2], jobs[3])
    return [job.id for job in jobs]


@asynchronous
class TestFind:
    async def test_a_term_finds_exactly_the_jobs_it_means(self, bench: Bench) -> None:
        ids = await shelf(bench)
        for name, (terms, expected) in TERMS.items():
            page = await bench.store.find(Query(terms=terms), now_ms=bench.clock.now_ms)
            assert {ids.index(job.id) for job in page.jobs} == expected, name
            assert page.complete, name

    async def test_a_job_is_found_by_its_id_and_by_its_flow(self, bench: Bench) -> None:
        flow = bench.id()
        members = await bench.add_many(2, flow=flow)
        await bench.add()
        by_flow = await bench.store.find(Query(terms=(Term("flow", id_text(flow)),)), now_ms=bench.clock.now_ms)
        assert {job.id for job in by_flow.jobs} == set(members)
        by_id = await bench.store.find(Query(terms=(Term("id", id_text(members[0])),)), now_ms=bench.clock.now_ms)
        assert [job.id for job in by_id.jobs] == [members[0]]

    async def test_jobs_are_found_by_age(self, bench: Bench) -> None:
        old = await bench.add()
        bench.clock.advance(10_000)
        young = await bench.add()
        bench.clock.advance(1_000)
        ages: list[tuple[Compare, bytes]] = [(">", old), ("<", young)]
        for op, expected in ages:
            query = Query(terms=(Term("age", "5000", op),))
            page = await bench.store.find(query, now_ms=bench.clock.now_ms)
            assert [job.id for job in page.jobs] == [expected]

    async def test_running_jobs_are_found_by_how_long_they_run(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand = bench.hand()
        (long,) = await hand.claim(1)
        bench.clock.advance(10_000)
        (short,) = await hand.claim(1)
        bench.clock.advance(1_000)
        assert await bench.found(Term("started", "5000", ">")) == [long.id]
        assert await bench.found(Term("started", "5000", "<")) == [short.id]
        assert await bench.found(Term("started", "0", ">=", negated=True)) == [ids[2]]
        await hand.succeed(long, short)
        assert await bench.found(Term("started", "0", ">=")) == []

    async def test_finished_jobs_are_found_by_how_long_ago_they_ended(self, bench: Bench) -> None:
        ids = await bench.add_many(4)
        hand = bench.hand()
        await hand.succeed(await hand.take())
        bench.clock.advance(10_000)
        await hand.bury(await hand.take())
        await bench.store.cancel([ids[2]], "why", now_ms=bench.clock.now_ms)
        bench.clock.advance(1_000)
        assert await bench.found(Term("finished", "5000", ">")) == [ids[0]]
        assert await bench.found(Term("finished", "5000", "<")) == ids[1:3]
        for state, expected in ((State.succeeded, []), (State.dead, ids[1:2]), (State.cancelled, ids[2:3])):
            query = Query(frozenset({state}), (Term("finished", "5000", "<"),))
            page = await bench.store.find(query, now_ms=bench.clock.now_ms)
            assert [job.id for job in page.jobs] == expected

    async def test_what_is_due_is_asked_of_scheduled_jobs(self, bench: Bench) -> None:
        soon, late = await bench.add(delay_ms=5_000), await bench.add(delay_ms=60_000)
        await bench.add()
        parent = await bench.add()
        await bench.add(after=(parent,), delay_ms=1_000)
        assert await bench.found(Term("due", "10000", "<")) == [soon]
        assert await bench.found(Term("due", "10000", ">")) == [late]
        bench.clock.advance(5_000)
        assert await bench.found(Term("due", "10000", "<")) == []

    @pytest.mark.parametrize("states", [{State.dead}, {State.ready, State.dead}, {State.running}, set(State)])
    async def test_states_narrow_the_search(self, bench: Bench, states: set[State]) -> None:
        await shelf(bench)
        page = await bench.store.find(Query(states=frozenset(states)), now_ms=bench.clock.now_ms)
        expected = [job for job in await bench.everything() if job.state in states]
        assert {job.id for job in page.jobs} == {job.id for job in expected}

    async def test_a_found_job_is_the_job_that_get_answers(self, bench: Bench) -> None:
        ids = await shelf(bench)
        found = {job.id: job for job in (await bench.store.find(Query(), now_ms=bench.clock.now_ms)).jobs}
        assert [found[id] for id in ids] == await bench.store.get(ids)

    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_pages_follow_each_other_without_a_gap(self, bench: Bench, newest_first: bool) -> None:
        ids = await bench.add_many(25)
        hand = bench.hand()
        await hand.succeed(*await hand.claim(5))
        found: list[bytes] = []
        sizes: list[int] = []
        cursor: str | None = None
        while True:
            query = Query(limit=10, cursor=cursor, newest_first=newest_first)
            page = await bench.store.find(query, now_ms=bench.clock.now_ms)
            found += [job.id for job in page.jobs]
            sizes.append(len(page.jobs))
            cursor = page.cursor
            if cursor is None:
                break
        assert found == (ids[::-1] if newest_first else ids)
        assert [size for size in sizes if size] == [10, 10, 5]

    async def test_a_cursor_stands_still_while_new_jobs_arrive(self, bench: Bench) -> None:
        ids = await bench.add_many(6)
        first = await bench.store.find(Query(limit=3), now_ms=bench.clock.now_ms)
        await bench.add_many(5)
        second = await bench.store.find(Query(limit=3, cursor=first.cursor), now_ms=bench.clock.now_ms)
        assert [job.id for job in (*first.jobs, *second.jobs)] == ids[::-1]


@asynchronous
class TestLooking:
    async def test_get_answers_in_order_with_none_for_what_is_not_there(self, bench: Bench) -> None:
        one, two = await bench.add_many(2)
        views = await bench.store.get([two, bench.id(), one, two])
        assert [view.id if view else None for view in views] == [two, None, one, two]
        assert await bench.store.get([]) == []

    async def test_an_id_is_found_by_the_end_of_its_text(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        assert await bench.ids_ending_in(id_text(ids[1])) == [ids[1]]
        assert await bench.ids_ending_in(id_text(ids[1])[-12:]) == [ids[1]]
        assert await bench.ids_ending_in("zzzz") == []

    async def test_an_ambiguous_end_answers_three_newest_first(self, bench: Bench) -> None:
        ids = [bench.id()[:14] + b"\xab\xcd" for _ in range(5)]
        await bench.put(*(bench.job(id=id) for id in ids))
        assert await bench.ids_ending_in("abcd") == ids[:1:-1]

    async def test_queues_are_seen_in_one_look(self, bench: Bench) -> None:
        await bench.add_many(2, queue="a")
        bench.clock.advance(500)
        await bench.add(queue="a", task="t", delay_ms=9_000)
        await bench.add(queue="b")
        hand = bench.hand(queues=("b",))
        await hand.succeed(await hand.take())
        await bench.change(GateChange("queue:c", pause=Pause("ada", "why", bench.clock.now_ms)))
        queues = {view.queue: view for view in (await bench.store.count(queues=True)).queues}
        assert set(queues) == {"a", "b", "c"}
        counts = {state: number for state, number in queues["a"].counts.items() if number}
        assert counts == {State.ready: 2, State.scheduled: 1}
        assert queues["a"].oldest_ready_at_ms == bench.clock.now_ms - 500
        assert queues["b"].oldest_ready_at_ms is None
        gate = queues["c"].gate
        assert gate is not None
        assert gate.paused is not None

    async def test_sessions_are_seen_with_what_they_do(self, bench: Bench) -> None:
        await bench.add_many(3)
        busy, idle = bench.hand("busy", queues=("default",)), bench.hand("idle", tasks=("other",))
        await busy.claim(2)
        assert await idle.claim() == []
        sessions = {view.session: view for view in await bench.store.sessions()}
        assert {name: (view.running, view.idle) for name, view in sessions.items()} == {
            "busy": (2, False),
            "idle": (0, True),
        }
        assert sessions["busy"].serves == busy.serves
        assert sessions["busy"].deadline_at_ms == bench.clock.now_ms + 15_000
        await idle.leave()
        assert [view.session for view in await bench.store.sessions()] == ["busy"]


@asynchronous
class TestStanding:
    async def test_a_ready_job_knows_how_many_are_ahead_and_who_could_run_it(self, bench: Bench) -> None:
        ids = await bench.add_many(4, needs=("gpu",))
        await bench.hand("w1").beat()
        await bench.hand("w2", capabilities=("gpu",)).beat()
        await bench.hand("w3", tasks=("other",), capabilities=("gpu",)).beat()
        standing = await bench.store.inspect(ids[2], now_ms=bench.clock.now_ms)
        assert standing is not None
        assert standing.view == await bench.view(ids[2])
        assert (standing.ahead, standing.ahead_capped) == (2, False)
        assert (standing.able, standing.able_without_needs, standing.knows_task) == (1, 1, 2)
        assert standing.parents == ()

    async def test_a_job_behind_gates_names_them(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        ids = await bench.add_many(2, limits=("x",), breaker="api")
        await bench.change(GateChange("queue:default", pause=Pause("ada", "why", bench.clock.now_ms)))
        standing = await bench.store.inspect(ids[1], now_ms=bench.clock.now_ms)
        assert standing is not None
        assert {"limit:x", "queue:default"} <= {gate.key for gate in standing.gates}

    async def test_a_blocked_job_names_the_parents_it_waits_for(self, bench: Bench) -> None:
        done, dead, ready = await bench.add(priority=0), await bench.add(priority=1), await bench.add()
        child = await bench.add(after=(done, dead, ready), if_parent_fails="wait")
        hand = bench.hand()
        await hand.succeed(await hand.take())
        await hand.bury(await hand.take())
        standing = await bench.store.inspect(child, now_ms=bench.clock.now_ms)
        assert standing is not None
        assert set(standing.parents) == {(dead, State.dead), (ready, State.ready)}

    async def test_a_lane_says_whether_it_is_active_or_waits(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        ids = await bench.add_many(2, keys=("x",))
        hand = bench.hand()
        await hand.take()
        assert await hand.claim() == []
        waiting = await bench.store.inspect(ids[1], now_ms=bench.clock.now_ms)
        plain = await bench.store.inspect(await bench.add(task="plain"), now_ms=bench.clock.now_ms)
        assert waiting is not None
        assert plain is not None
        assert (waiting.lane_state, plain.lane_state) == ("waiting", "active")

    async def test_a_job_that_is_not_there_has_no_standing(self, bench: Bench) -> None:
        assert await bench.store.inspect(bench.id(), now_ms=bench.clock.now_ms) is None
