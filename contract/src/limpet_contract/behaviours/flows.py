"""Behaviours of flows: jobs that carry one flow id are counted, listed and found together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import FlowView, Query, Retention, Term
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

MORE_THAN_A_LOOK = 10_001  # jobs: more than one page looks at when it has to look at them all


def of_flow(flow: bytes) -> Term:
    return Term("flow", id_text(flow))


async def started(bench: Bench, count: int = 1) -> bytes:
    """A flow of ready jobs."""
    flow = bench.id()
    await bench.add_many(count, flow=flow)
    return flow


async def pages(bench: Bench, term: Term, limit: int, *, newest_first: bool) -> list[bytes]:
    """All ids that a term finds, page by page; none of the pages may say that it did not look at everything."""
    found: list[bytes] = []
    cursor: str | None = None
    while True:
        query = Query(terms=(term,), limit=limit, cursor=cursor, newest_first=newest_first)
        page = await bench.store.find(query, now_ms=bench.clock.now_ms)
        assert page.complete
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found


async def finish(bench: Bench, how: str, *ids: bytes) -> None:
    """End these jobs, which must be the next ones."""
    hand = bench.hand("finisher")
    jobs = await hand.claim(len(ids))
    assert [job.id for job in jobs] == list(ids)
    await hand.end(how, *jobs)


@asynchronous
class TestFlows:
    async def test_flows_are_listed_newest_first(self, bench: Bench) -> None:
        first, second = await started(bench, 2), await started(bench, 3)
        enqueued_at_ms = bench.clock.now_ms
        bench.clock.advance(1_000)
        await bench.add()
        third = await started(bench)
        assert await bench.store.flows() == [
            FlowView(third, {State.ready: 1}, bench.clock.now_ms),
            FlowView(second, {State.ready: 3}, enqueued_at_ms),
            FlowView(first, {State.ready: 2}, enqueued_at_ms),
        ]

    async def test_without_flows_the_list_is_empty(self, bench: Bench) -> None:
        await bench.add()
        assert await bench.store.flows() == []
        assert await bench.store.flows([bench.id()]) == []
        assert await bench.store.flows([]) == []

    async def test_a_list_goes_on_before_its_last_flow(self, bench: Bench) -> None:
        flows = [await started(bench, 2) for _ in range(7)][::-1]
        found: list[bytes] = []
        sizes = []
        while page := await bench.store.flows(limit=3, before=found[-1] if found else None):
            found += [view.id for view in page]
            sizes.append(len(page))
        assert found == flows
        assert sizes == [3, 3, 1]
        assert [view.id for view in await bench.store.flows(before=bench.id(), limit=2)] == flows[:2]

    async def test_flows_asked_for_by_id_come_in_order(self, bench: Bench) -> None:
        flows = [await started(bench, number) for number in (1, 2, 3)]
        views = await bench.store.flows([flows[2], bench.id(), flows[0]])
        assert [(view.id, view.counts) for view in views] == [
            (flows[2], {State.ready: 3}),
            (flows[0], {State.ready: 1}),
        ]
        many = [await started(bench) for _ in range(60)]
        assert [view.id for view in await bench.store.flows(many)] == many

    async def test_counts_follow_the_jobs(self, bench: Bench) -> None:
        flow = bench.id()
        hand = bench.hand()

        async def counts() -> dict[State, int]:
            (view,) = await bench.store.flows([flow])
            assert all(view.counts.values()), "a state is named that no job is in"
            return view.counts

        parent = await bench.add(flow=flow, priority=0)
        child = await bench.add(flow=flow, after=(parent,))
        later = await bench.add(flow=flow, delay_ms=1_000)
        doomed = await bench.add(flow=flow, priority=1)
        await bench.add(flow=flow, after=(doomed,))
        await bench.add(after=(parent,))
        assert await counts() == {State.blocked: 2, State.scheduled: 1, State.ready: 2}
        one, two = await hand.claim(2)
        assert await counts() == {State.blocked: 2, State.scheduled: 1, State.running: 2}
        await hand.succeed(one)
        assert await counts() == {
            State.blocked: 1,
            State.scheduled: 1,
            State.ready: 1,
            State.running: 1,
            State.succeeded: 1,
        }
        await hand.bury(two)
        await bench.cancel(later, child)
        assert await counts() == {State.succeeded: 1, State.dead: 1, State.cancelled: 3}
        await bench.retry(doomed)
        assert await counts() == {State.blocked: 1, State.ready: 1, State.succeeded: 1, State.cancelled: 2}

    async def test_what_is_removed_leaves_its_flow_and_the_last_one_ends_it(self, bench: Bench) -> None:
        flow, other = bench.id(), bench.id()
        first = await bench.add(flow=flow, priority=0)
        bench.clock.advance(100)
        second = await bench.add(flow=flow, priority=1)
        at_ms = bench.clock.now_ms
        kept = await bench.add(flow=other)
        await finish(bench, "bury", first)
        await finish(bench, "succeed", second)
        await bench.store.discard([first], now_ms=bench.clock.now_ms)
        assert await bench.store.flows([flow]) == [FlowView(flow, {State.succeeded: 1}, at_ms)]
        assert await bench.found(of_flow(flow)) == [second]
        await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms)
        assert await bench.store.flows([flow]) == []
        assert [view.id for view in await bench.store.flows()] == [other]
        assert await bench.found(of_flow(flow)) == []
        assert await bench.found(of_flow(other)) == [kept]

    async def test_cancelled_jobs_leave_their_flow_when_they_are_pruned(self, bench: Bench) -> None:
        flow = await started(bench, 2)
        await bench.cancel(*await bench.found(of_flow(flow)))
        await bench.store.prune(Retention(cancelled_ms=0), now_ms=bench.clock.now_ms)
        assert await bench.store.flows() == []

    async def test_a_flow_may_grow(self, bench: Bench) -> None:
        flow = await started(bench)
        enqueued_at_ms = bench.clock.now_ms
        bench.clock.advance(1_000)
        await bench.add_many(2, flow=flow)
        assert await bench.store.flows() == [FlowView(flow, {State.ready: 3}, enqueued_at_ms)]

    async def test_a_duplicate_does_not_join(self, bench: Bench) -> None:
        flow, other = bench.id(), bench.id()
        id = await bench.add(flow=flow, unique=Unique("once"))
        for on_duplicate in ("existing", "replace"):
            again = bench.job(flow=other, unique=Unique("once", on_duplicate=on_duplicate))
            assert (await bench.put(again, bench.job(id=id, flow=other)))[0].existing
        assert [(view.id, view.counts) for view in await bench.store.flows()] == [(flow, {State.ready: 1})]
        assert await bench.found(of_flow(flow)) == [id]

    async def test_a_large_flow_is_counted_whole(self, bench: Bench) -> None:
        flow = await started(bench, 1_200)
        assert [view.counts for view in await bench.store.flows([flow])] == [{State.ready: 1_200}]

    async def test_relayed_jobs_belong_to_their_flow(self, bench: Bench) -> None:
        flow = bench.id()
        jobs = [bench.job(flow=flow) for _ in range(2)]
        await bench.store.relay("orders", 1, jobs, now_ms=bench.clock.now_ms)
        assert await bench.found(of_flow(flow)) == [job.id for job in jobs]
        assert [view.id for view in await bench.store.flows()] == [flow]


@asynchronous
class TestFindingTogether:
    @pytest.mark.parametrize("newest_first", [True, False])
    @pytest.mark.parametrize("limit", [1, 7, 25, 26, 500])
    async def test_the_jobs_of_a_flow_come_in_order_in_pages_of_any_size(
        self, bench: Bench, limit: int, newest_first: bool
    ) -> None:
        flow, other = bench.id(), bench.id()
        ids: list[bytes] = []
        for _ in range(5):
            ids += await bench.add_many(5, flow=flow)
            await bench.add_many(3, flow=other)
            await bench.add_many(2)
        hand = bench.hand()
        await hand.succeed(*await hand.claim(20))
        expected = ids[::-1] if newest_first else ids
        assert await pages(bench, of_flow(flow), limit, newest_first=newest_first) == expected

    async def test_states_and_other_terms_narrow_a_flow(self, bench: Bench) -> None:
        flow = bench.id()
        mail = await bench.add_many(3, flow=flow, queue="mail")
        rest = await bench.add_many(2, flow=flow)
        await bench.add(queue="mail")
        hand = bench.hand(queues=("mail",))
        await hand.bury(await hand.take())
        dead = frozenset({State.dead})
        assert await bench.found(of_flow(flow), states=dead) == mail[:1]
        assert await bench.found(of_flow(flow), states=frozenset({State.ready, State.dead})) == [*mail, *rest]
        assert await bench.found(of_flow(flow), Term("queue", "mail")) == mail
        assert await bench.found(of_flow(flow), Term("queue", "mail", negated=True)) == rest
        assert await bench.found(of_flow(flow), of_flow(bench.id())) == []
        everything = await bench.found(limit=500)
        assert await bench.found(Term("flow", id_text(flow), negated=True)) == [
            id for id in everything if id not in {*mail, *rest}
        ]

    async def test_a_flow_and_a_key_are_found_among_very_many_jobs(self, bench: Bench) -> None:
        flow = bench.id()
        ids = await bench.add_many(3, flow=flow)
        keyed = await bench.add(unique=Unique("report:7"))
        jobs = [bench.job() for _ in range(MORE_THAN_A_LOOK)]
        await bench.put(*jobs)
        newer = await bench.add(flow=flow)
        for newest_first in (True, False):
            expected = [*ids, newer][:: -1 if newest_first else 1]
            assert await pages(bench, of_flow(flow), 2, newest_first=newest_first) == expected
            assert await pages(bench, Term("unique", "report:7"), 2, newest_first=newest_first) == [keyed]

    async def test_a_flow_of_very_many_jobs_is_walked_to_its_end(self, bench: Bench) -> None:
        flow = bench.id()
        ids = await bench.add_many(MORE_THAN_A_LOOK, flow=flow)
        hand = bench.hand()
        await hand.bury(await hand.take())
        assert await bench.found(of_flow(flow), states=frozenset({State.dead})) == ids[:1]
        for limit in (2_000, MORE_THAN_A_LOOK):
            assert await pages(bench, of_flow(flow), limit, newest_first=True) == ids[::-1]

    @pytest.mark.parametrize("newest_first", [True, False])
    async def test_a_key_finds_all_who_hold_or_held_it(self, bench: Bench, newest_first: bool) -> None:
        ids = await self.holders(bench, "report:7")
        await self.holders(bench, "report:70")
        expected = ids[::-1] if newest_first else ids
        for limit in (1, 50):
            term = Term("unique", "report:7")
            assert await pages(bench, term, limit, newest_first=newest_first) == expected

    async def holders(self, bench: Bench, key: str) -> Sequence[bytes]:
        """Jobs of two tasks that had this key one after another, and one that has it now; a duplicate is none."""
        ids = []
        for task, how in (("a", "succeed"), ("b", "bury"), ("a", "drop")):
            ids.append(await bench.add(task=task, unique=Unique(key)))
            await finish(bench, how, ids[-1])
        ids.append(await bench.add(task="a", unique=Unique(key)))
        assert (await bench.put(bench.job(task="a", unique=Unique(key))))[0].existing
        await bench.cancel(ids[-1])
        ids.append(await bench.add(task="a", unique=Unique(key), delay_ms=1_000))
        return ids

    async def test_who_held_a_key_is_found_until_it_is_removed(self, bench: Bench) -> None:
        id = await bench.add(unique=Unique("once", for_ms=600_000))
        await finish(bench, "succeed", id)
        assert await bench.found(Term("unique", "once")) == [id]
        await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms)
        assert await bench.found(Term("unique", "once")) == []

    async def test_a_key_is_narrowed_by_states_and_other_terms(self, bench: Bench) -> None:
        first = await bench.add(task="a", unique=Unique("once"))
        second = await bench.add(task="b", unique=Unique("once"))
        await finish(bench, "bury", first)
        assert await bench.found(Term("unique", "once"), states=frozenset({State.dead})) == [first]
        assert await bench.found(Term("unique", "once"), Term("task", "b")) == [second]
        assert await bench.found(Term("unique", "once", negated=True)) == []
