"""Settlement beside everything that can happen to the same jobs at the same time, one interleaving per test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from limpet.core.endings.transition import Bury, Drop, Failure, Hold, Release, RetryAfter, Settled, Succeed, Transition
from limpet.core.jobs.state import State
from tests.engines.postgres.races import LANE, NOW, Ground, Line
from tests.engines.postgres.schemas import fresh_schema
from tests.servers.installations import POSTGRES

BLOCKED, SCHEDULED, READY, RUNNING, SUCCEEDED, DEAD, CANCELLED = (state.code for state in State)
STALE = 15

FAILURE = Failure("transient", "builtins.OSError", "it broke", "Traceback ...", "broke")
DONE, FAILED = Settled("done", State.succeeded), Settled("done", State.scheduled)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with fresh_schema(POSTGRES, rooms="89") as schema:
        yield Ground(schema)


def fail(id: bytes, token: int) -> RetryAfter:
    return RetryAfter(id, token, FAILURE, 1_000)


def bury(id: bytes, token: int) -> Bury:
    return Bury(id, token, FAILURE)


def drop(id: bytes, token: int) -> Drop:
    return Drop(id, token, "pointless")


Ending = Callable[[bytes, int], Transition]


class TestTheSameCall:
    def test_twice_at_once_waits_and_answers_the_same(self, ground: Ground) -> None:
        (one, token), (two, other), session = ground.running(), ground.running(), ground.name()
        asked = (Succeed(one, token, b"1"), fail(two, other))
        with ground.open() as line:
            first = ground.settle(*asked, line=line, session=session)
            again = ground.settling(*asked, session=session)
            assert again.waits()
            line.commit()
            stale = ground.total(STALE)
            assert again.answer() == first == [DONE, FAILED]
        assert ground.total(STALE) == stale
        assert ground.one("SELECT count(*) FROM lp.attempt WHERE job = %s", two) == 1

    def test_is_done_by_the_second_when_the_first_is_rolled_back(self, ground: Ground) -> None:
        (id, token), session = ground.running(), ground.name()
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line, session=session)
            again = ground.settling(Succeed(id, token), session=session)
            assert again.waits()
            line.rollback()
            assert again.answer() == [DONE]
        assert ground.state(id) == SUCCEEDED

    def test_the_last_answer_is_kept_and_older_ones_are_not(self, ground: Ground) -> None:
        (id, token), session = ground.running(), ground.name()
        assert ground.settle(Succeed(id, token), session=session, seq=1) == [DONE]
        missing = ground.id()
        assert ground.settle(Succeed(missing, 1), session=session, seq=2) == [Settled("gone")]
        assert ground.settle(Succeed(id, token), session=session, seq=2) == [Settled("gone")]
        assert ground.settle(Succeed(id, token), session=session, seq=1) == [Settled("stale", State.succeeded)]


class TestTwoSettlements:
    def test_of_different_jobs_never_meet(self, ground: Ground) -> None:
        (parent, _), (one, first), (two, second) = ground.running(), ground.running(), ground.running()
        ground.enqueue(ground.job(after=(parent,)))
        with ground.open() as line:
            ground.settle(Succeed(one, first, b"1"), line=line)
            other = ground.settling(Succeed(two, second, b"2"))
            assert not other.waits()
            assert other.answer() == [DONE]
            line.commit()

    def test_of_one_job_end_it_once(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(Succeed(id, token, b'"first"'), line=line)
            late = ground.settling(Succeed(id, token, b'"second"'))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("stale", State.succeeded)]
        assert ground.one("SELECT body FROM lp.result WHERE id = %s", id) == b'"first"'

    def test_a_failure_that_meets_a_success_of_the_same_job_is_stale(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line)
            late = ground.settling(fail(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("stale", State.succeeded)]
        assert ground.one("SELECT count(*) FROM lp.attempt WHERE job = %s", id) == 0

    @pytest.mark.parametrize("ending", [Succeed, fail])
    def test_an_old_token_that_waits_for_the_row_finds_the_new_one(self, ground: Ground, ending: Ending) -> None:
        id, token = ground.running()
        with ground.open() as line:
            # Its lease ends and it is claimed again, in the moment in which the first holder settles it.
            line.execute(ground.schema.sql("UPDATE lp.running SET token = token + 1000000 WHERE id = %s"), (id,))
            late = ground.settling(ending(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("stale", State.running)]
        assert ground.one("SELECT token FROM lp.running WHERE id = %s", id) == token + 1_000_000

    @pytest.mark.parametrize("left", [0, 1])
    def test_of_one_lease_both_leave_it(self, ground: Ground, left: int) -> None:
        one, token = ground.running()
        two, *_ = [ground.running(token=token)[0] for _ in range(1 + left)]
        with ground.open() as line:
            ground.settle(Succeed(one, token), line=line)
            other = ground.settling(Succeed(two, token))
            assert other.waits()
            line.commit()
            assert other.answer() == [DONE]
        leases = ground.schema.ask("SELECT left_n FROM lp.lease WHERE token = %s", token)
        assert leases == [(left,)] * (left > 0)

    def test_in_opposite_orders_do_not_lock_each_other_out(self, ground: Ground) -> None:
        jobs = [ground.running() for _ in range(2)]
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT 1 FROM lp.running WHERE id = %s FOR UPDATE"), (jobs[0][0],))
            up = ground.settling(*(Succeed(*job) for job in jobs))
            assert up.waits()
            down = ground.settling(*(Succeed(*job) for job in reversed(jobs)))
            assert down.waits()
            line.commit()
            assert sorted([*up.answer(), *down.answer()], key=str) == sorted(
                [DONE, DONE, Settled("stale", State.succeeded), Settled("stale", State.succeeded)], key=str
            )


class TestGates:
    CHARGED = json.dumps([["limit:a", True, 0, False], ["limit:b", True, 0, False]])
    REVERSED = json.dumps([["limit:b", True, 0, False], ["limit:a", True, 0, False]])
    BREAKER = json.dumps([["breaker:api", False, 0, False]])

    @pytest.fixture(autouse=True)
    def gates(self, ground: Ground) -> None:
        ground.one(
            "INSERT INTO lp.gate (key, concurrency, used) VALUES ('limit:a', 9, 4), ('limit:b', 9, 4) "
            "ON CONFLICT (key) DO UPDATE SET used = 4 RETURNING 1"
        )
        ground.one(
            "INSERT INTO lp.gate AS g "
            "(key, breaker_failures, breaker_within_ms, breaker_cooldown_ms, breaker_probe_after_ms) "
            "VALUES ('breaker:api', 3, 60000, 1000, 1000) ON CONFLICT (key) DO UPDATE SET failed_at_ms = '{}', "
            "open_until_ms = 0 RETURNING 1"
        )

    def test_both_of_two_give_back_what_they_took(self, ground: Ground) -> None:
        (one, first), (two, second) = ground.running(charged=self.CHARGED), ground.running(charged=self.REVERSED)
        with ground.open() as line:
            ground.settle(Succeed(one, first), line=line)
            other = ground.settling(fail(two, second))
            assert other.waits()
            line.commit()
            assert other.answer() == [FAILED]
        assert ground.schema.ask("SELECT used FROM lp.gate WHERE key LIKE %s", "limit:_") == [(2,), (2,)]

    def test_gates_are_taken_in_their_order_however_they_were_charged(self, ground: Ground) -> None:
        jobs = [ground.running(charged=charged) for charged in (self.CHARGED, self.REVERSED)]
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT 1 FROM lp.gate WHERE key = 'limit:a' FOR UPDATE"))
            calls = [ground.settling(Succeed(*job)) for job in jobs]
            assert all(call.waits() for call in calls)
            line.execute(ground.schema.sql("SELECT 1 FROM lp.gate WHERE key = 'limit:b' FOR UPDATE NOWAIT"))
            line.commit()
            assert [call.answer() for call in calls] == [[DONE], [DONE]]

    def test_successes_under_a_breaker_that_counts_nothing_never_meet(self, ground: Ground) -> None:
        (one, first), (two, second) = ground.running(charged=self.BREAKER), ground.running(charged=self.BREAKER)
        with ground.open() as line:
            ground.settle(Succeed(one, first), line=line)
            other = ground.settling(Succeed(two, second))
            assert not other.waits()
            line.commit()

    def test_failures_at_once_are_all_counted(self, ground: Ground) -> None:
        jobs = [ground.running(charged=self.BREAKER) for _ in range(3)]
        with ground.open() as line:
            ground.settle(fail(*jobs[0]), line=line)
            calls = [ground.settling(fail(*job)) for job in jobs[1:]]
            assert all(call.waits() for call in calls)
            line.commit()
            shut = sorted(answer.shut for call in calls for answer in call.answer())
            assert shut == [(), ("breaker:api",)]
        assert ground.one("SELECT open_until_ms FROM lp.gate WHERE key = 'breaker:api'") > NOW

    def test_two_that_make_one_gate_both_hold_it(self, ground: Ground) -> None:
        (one, first), (two, second), key = ground.running(), ground.running(), f"limit:{ground.name()}"
        with ground.open() as line:
            ground.settle(Hold(one, first, key, 9_000), line=line)
            other = ground.settling(Hold(two, second, key, 5_000))
            assert other.waits()
            line.commit()
            assert other.answer() == [Settled("done", State.scheduled, (key,))]
        assert ground.one("SELECT held_until_ms FROM lp.gate WHERE key = %s", key) == NOW + 9_000


class TestDependents:
    def test_of_two_last_parents_one_releases_the_child(self, ground: Ground) -> None:
        (one, first), (two, second) = ground.running(), ground.running()
        child = ground.job(after=(one, two))
        ground.enqueue(child)
        with ground.open() as line:
            ground.settle(Succeed(one, first, b"1"), line=line)
            other = ground.settling(Succeed(two, second, b"2"))
            assert other.waits()
            line.commit()
            other.answer()
        assert ground.state(child.id) == READY
        assert ground.schema.ask("SELECT result FROM lp.dep WHERE child = %s ORDER BY 1", child.id) == [
            (b"1",),
            (b"2",),
        ]
        assert ground.one("SELECT sum(n) FROM lp.post WHERE id = %s", child.id) == 1

    @pytest.mark.parametrize("first", ["success", "failure"])
    def test_of_a_parent_that_works_and_one_that_fails_the_last_releases_who_runs_anyway(
        self, ground: Ground, first: str
    ) -> None:
        one, two = ground.running(), ground.running()
        child = ground.job(after=(one[0], two[0]), if_parent_fails="run")
        ground.enqueue(child)
        ends: list[Transition] = [Succeed(*one), bury(*two)]
        if first == "failure":
            ends.reverse()
        with ground.open() as line:
            ground.settle(ends[0], line=line)
            other = ground.settling(ends[1])
            assert other.waits()
            line.commit()
            other.answer()
        assert ground.state(child.id) == READY

    def test_parents_of_different_children_never_meet(self, ground: Ground) -> None:
        (one, first), (two, second) = ground.running(), ground.running()
        ground.enqueue(ground.job(after=(one,)), ground.job(after=(two,)))
        with ground.open() as line:
            ground.settle(Succeed(one, first), line=line)
            other = ground.settling(Succeed(two, second))
            assert not other.waits()
            line.commit()

    def test_many_common_children_are_released_once_and_nobody_is_locked_out(self, ground: Ground) -> None:
        parents = [ground.running() for _ in range(4)]
        pairs = [(a, b) for a in range(4) for b in range(4) if a < b]
        children = [ground.job(after=(parents[a][0], parents[b][0])) for a, b in pairs for _ in range(5)]
        ground.enqueue(*children)
        calls = [ground.settling(*(Succeed(*parents[n]) for n in some)) for some in ((3, 0), (2, 1))]
        assert [call.answer() for call in calls] == [[DONE, DONE], [DONE, DONE]]
        assert {ground.state(child.id) for child in children} == {READY}
        ids = [child.id for child in children]
        assert ground.one("SELECT count(*) FROM lp.dep WHERE child = ANY (%s) AND NOT done", ids) == 0

    def test_a_child_that_is_enqueued_while_its_parent_succeeds_is_released(self, ground: Ground) -> None:
        parent, token = ground.running()
        child = ground.job(after=(parent,))
        with ground.open() as line:
            (answer,) = ground.enqueue(child, line=line)
            assert answer.state is State.blocked
            end = ground.settling(Succeed(parent, token, b"42"))
            assert end.waits()
            line.commit()
            end.answer()
        assert ground.state(child.id) == READY
        assert ground.one("SELECT result FROM lp.dep WHERE child = %s", child.id) == b"42"

    def test_a_child_whose_parent_succeeds_while_it_is_enqueued_needs_no_release(self, ground: Ground) -> None:
        parent, token = ground.running()
        child = ground.job(after=(parent,))
        with ground.open() as line:
            ground.settle(Succeed(parent, token, b"42"), line=line)
            added = ground.start(lambda late: ground.enqueue(child, line=late))
            assert added.waits()
            line.commit()
            assert [answer.state for answer in added.answer()] == [State.ready]
        assert ground.one("SELECT result FROM lp.dep WHERE child = %s", child.id) == b"42"

    def test_a_child_whose_parent_dies_while_it_is_enqueued_is_cancelled(self, ground: Ground) -> None:
        parent, token = ground.running()
        child = ground.job(after=(parent,))
        with ground.open() as line:
            ground.settle(bury(parent, token), line=line)
            added = ground.start(lambda late: ground.enqueue(child, line=late))
            assert added.waits()
            line.commit()
            assert [answer.state for answer in added.answer()] == [State.cancelled]

    def test_a_parent_that_is_cancelled_while_its_child_is_enqueued_takes_it_along(self, ground: Ground) -> None:
        parent = ground.job()
        child = ground.job(after=(parent.id,))
        ground.enqueue(parent)
        with ground.open() as line:
            ground.enqueue(child, line=line)
            end = ground.start(lambda late: cancel(ground, parent.id, line=late))
            assert end.waits()
            line.commit()
            end.answer()
        assert [ground.state(parent.id), ground.state(child.id)] == [CANCELLED, CANCELLED]

    def test_an_enqueue_and_a_cancel_do_not_lock_each_other_out(self, ground: Ground) -> None:
        parent = ground.job()
        child = ground.job(after=(parent.id,))
        ground.enqueue(parent)
        with ground.open() as line:
            ground.one("SELECT lp.lock(:GRAPH)", line=line)  # as a cancel begins
            added = ground.start(lambda late: ground.enqueue(child, line=late))
            added.waits()
            assert ground.one("SELECT lp.cancel_waiting(%s, 'no', %s)", parent.id, NOW, line=line)
            line.commit()
            added.answer()
        assert [ground.state(parent.id), ground.state(child.id)] == [CANCELLED, CANCELLED]

    def test_a_child_revived_by_one_parent_is_cancelled_by_another_that_dies_meanwhile(self, ground: Ground) -> None:
        dead, failing = ground.running(), ground.running()
        child = ground.job(after=(dead[0], failing[0]))
        ground.enqueue(child)
        ground.settle(bury(*dead))
        assert ground.state(child.id) == CANCELLED
        with ground.open() as line:
            retry(ground, dead[0], line=line)
            end = ground.settling(bury(*failing))
            assert end.waits()
            line.commit()
            end.answer()
        assert ground.state(child.id) == CANCELLED
        assert ground.one("SELECT count(*) FROM lp.wait WHERE id = %s", child.id) == 0

    def test_a_child_of_a_dead_job_that_is_tried_again_meanwhile_waits_for_it(self, ground: Ground) -> None:
        parent = ground.running()
        ground.settle(bury(*parent))
        child = ground.job(after=(parent[0],))
        with ground.open() as line:
            retry(ground, parent[0], line=line)
            added = ground.start(lambda late: ground.enqueue(child, line=late))
            assert added.waits()
            line.commit()
            assert [answer.state for answer in added.answer()] == [State.blocked]

    def test_a_parent_that_came_back_to_life_meanwhile_is_held_like_any_other(self, ground: Ground) -> None:
        parent = ground.running()
        ground.settle(bury(*parent))
        child = ground.job(after=(parent[0],))
        with ground.open() as line, ground.open() as own:
            retry(ground, parent[0], line=line)
            added = ground.start(lambda late: ground.enqueue(child, line=late), own)
            assert added.waits()
            line.commit()
            assert [answer.state for answer in added.answer()] == [State.blocked]
            # Else it could run and succeed before the child is there to be seen.
            assert ground.schema.ask("SELECT 1 FROM lp.wait WHERE id = %s FOR UPDATE SKIP LOCKED", parent[0]) == []
            own.commit()

    def test_nobody_waits_for_a_dead_job_that_is_discarded_meanwhile(self, ground: Ground) -> None:
        parent = ground.running()
        ground.settle(bury(*parent))
        child = ground.job(after=(parent[0],), if_parent_fails="wait")
        with ground.open() as line:
            ground.enqueue(child, line=line)
            gone = ground.start(
                lambda late: ground.one(
                    "SELECT gone FROM lp.discard_1(%s, %s, %s)", ground.name(), [parent[0]], NOW, line=late
                )
            )
            assert gone.waits()
            line.commit()
            assert gone.answer() == 1
        assert ground.state(child.id) == CANCELLED

    def test_nobody_waits_for_a_failed_job_that_is_erased_in_the_moment_of_the_look(self, ground: Ground) -> None:
        for mode, expected in (("cancel", CANCELLED), ("run", READY), ("wait", CANCELLED)):
            parent = ground.running()
            ground.settle(bury(*parent))
            child = ground.job(after=(parent[0],), if_parent_fails=mode)
            with ground.open() as line:
                line.execute(ground.schema.sql("DELETE FROM lp.done WHERE id = %s"), (parent[0],))
                line.execute(ground.schema.sql("INSERT INTO lp.gone VALUES (%s, 5, %s)"), (parent[0], NOW + 1))
                added = ground.start(lambda late, child=child: ground.enqueue(child, line=late))  # type: ignore[misc]
                assert added.waits()
                line.commit()
                added.answer()
            assert ground.state(child.id) == expected

    def test_a_child_may_become_a_parent_while_it_is_released(self, ground: Ground) -> None:
        parent, token = ground.running()
        child = ground.job(after=(parent,))
        ground.enqueue(child)
        with ground.open() as line:
            ground.enqueue(ground.job(after=(child.id,)), line=line)
            end = ground.settling(Succeed(parent, token))
            assert not end.waits()
            assert end.answer() == [DONE]
            line.commit()
        assert ground.state(child.id) == READY


class TestChildrenOfCallersTransactions:
    """They lock no parent; a claim looks at their parents after the commit."""

    def child(self, ground: Ground, parent: bytes, mode: int = 0) -> bytes:
        id = ground.id()
        ground.one(
            "INSERT INTO lp.job (id, lane, policy, enqueued_ms, args) VALUES (%s, %s, 1, 0, '') RETURNING 1",
            id,
            LANE.id,
        )
        ground.one("INSERT INTO lp.dep (child, parent, mode) VALUES (%s, %s, %s) RETURNING 1", id, parent, mode)
        ground.one(
            "INSERT INTO lp.wait (id, lane, due_ms, state, priority) VALUES (%s, %s, %s, 0, 5) RETURNING 1",
            id, LANE.id, NOW,
        )  # fmt: skip
        return id

    def look(self, ground: Ground, child: bytes) -> bool:
        return bool(ground.one("SELECT lp.apply_child_post(%s, %s)", child, NOW))

    def test_a_parent_that_is_just_ending_is_looked_at_again(self, ground: Ground) -> None:
        parent, token = ground.running()
        with ground.open() as line:
            ground.settle(Succeed(parent, token, b"42"), line=line)  # it sees no child
            child = self.child(ground, parent)
            assert not self.look(ground, child)
            line.commit()
        assert ground.state(child) == BLOCKED
        assert self.look(ground, child)
        assert ground.state(child) == READY
        assert ground.one("SELECT result FROM lp.dep WHERE child = %s", child) == b"42"

    def test_a_parent_that_lives_releases_it_later(self, ground: Ground) -> None:
        parent, token = ground.running()
        child = self.child(ground, parent)
        assert self.look(ground, child)
        assert ground.state(child) == BLOCKED
        ground.settle(Succeed(parent, token))
        assert ground.state(child) == READY
        assert self.look(ground, child)

    @pytest.mark.parametrize(("mode", "expected"), [(0, CANCELLED), (1, READY), (2, BLOCKED)])
    def test_a_parent_that_had_failed_is_met_as_by_any_child(self, ground: Ground, mode: int, expected: int) -> None:
        parent, token = ground.running()
        ground.settle(bury(parent, token))
        child = self.child(ground, parent, mode)
        assert self.look(ground, child)
        assert ground.state(child) == expected
        if mode == 0:
            assert ground.one("SELECT flags FROM lp.done WHERE id = %s", child) == 32

    @pytest.mark.parametrize(("ended", "expected"), [(SUCCEEDED, READY), (DEAD, CANCELLED), (None, CANCELLED)])
    def test_a_parent_that_is_stored_no_more(self, ground: Ground, ended: int | None, expected: int) -> None:
        parent = ground.id()
        if ended is not None:
            ground.one("INSERT INTO lp.gone VALUES (%s, %s, %s) RETURNING 1", parent, ended, NOW + 1)
        child = self.child(ground, parent)
        assert self.look(ground, child)
        assert ground.state(child) == expected

    def test_it_waits_for_nobody_at_the_graph(self, ground: Ground) -> None:
        parent, _ = ground.running()
        child = self.child(ground, parent)
        with ground.open() as line:
            ground.one("SELECT lp.lock(:GRAPH)", line=line)
            assert not self.look(ground, child)

    def test_a_dead_parent_that_is_just_tried_again_is_looked_at_again(self, ground: Ground) -> None:
        parent = ground.running()
        ground.settle(bury(*parent))
        with ground.open() as line:
            line.execute(ground.schema.sql("DELETE FROM lp.done WHERE id = %s"), (parent[0],))
            child = self.child(ground, parent[0])
            assert not self.look(ground, child)


class TestVeryManyChildren:
    def test_one_that_somebody_holds_is_released_later(self, ground: Ground) -> None:
        parent, token = ground.running()
        children = sorted(job.id for job in (ground.job(after=(parent,)) for _ in range(300)))
        ground.enqueue(*(ground.job(after=(parent,)) for _ in range(300)))
        children = [
            row[0] for row in ground.schema.ask("SELECT child FROM lp.dep WHERE parent = %s ORDER BY 1", parent)
        ]
        ground.settle(Succeed(parent, token, b"1"))
        assert ground.one("SELECT count(*) FROM lp.fan WHERE parent = %s", parent) == 1
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT 1 FROM lp.wait WHERE id = %s FOR UPDATE"), (children[-1],))
            assert ground.one("SELECT lp.fan_out(%s)", NOW)
            assert [ground.state(child) for child in children[-2:]] == [READY, BLOCKED]
            line.commit()
        while ground.one("SELECT lp.fan_out(%s)", NOW):
            pass
        assert {ground.state(child) for child in children} == {READY}
        assert ground.one("SELECT count(*) FROM lp.fan WHERE parent = %s", parent) == 0


class TestBesideOperators:
    def test_a_forced_cancel_that_comes_first_fences_the_success(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            assert cancel(ground, id, force=True, line=line) == [0]
            late = ground.settling(Succeed(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("stale", State.cancelled)]

    def test_a_forced_cancel_that_comes_second_finds_it_finished(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line)
            late = ground.start(lambda late: cancel(ground, id, force=True, line=late))
            assert late.waits()
            line.commit()
            assert late.answer() == [2]
        assert ground.state(id) == SUCCEEDED

    def test_a_request_to_stop_that_comes_first_is_heeded(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            assert cancel(ground, id, line=line) == [1]
            late = ground.settling(fail(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("done", State.cancelled)]

    def test_a_sweep_does_not_wait_for_a_settlement(self, ground: Ground) -> None:
        id, token = ground.running()
        ground.one("UPDATE lp.lease SET hard_until_ms = 1 WHERE token = %s RETURNING 1", token)
        ground.one("UPDATE lp.sweep SET swept_at_ms = %s, calm_until_ms = 0 RETURNING 1", NOW)
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line)
            swept = ground.start(lambda late: sweep(ground, line=late))
            assert not swept.waits()
            assert swept.answer() == 0
            line.commit()
        assert ground.state(id) == SUCCEEDED

    @pytest.mark.parametrize("ending", [Succeed, fail])
    def test_what_a_sweep_took_back_is_stale(self, ground: Ground, ending: Ending) -> None:
        id, token = ground.running()
        ground.one("UPDATE lp.lease SET hard_until_ms = 1 WHERE token = %s RETURNING 1", token)
        ground.one("UPDATE lp.sweep SET swept_at_ms = %s, calm_until_ms = 0 RETURNING 1", NOW)
        with ground.open() as line:
            assert sweep(ground, line=line) == 1
            late = ground.settling(ending(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [Settled("stale", State.ready)]
        assert ground.one("SELECT lost FROM lp.wait WHERE id = %s", id) == 1

    def test_a_note_of_a_job_that_ends_meanwhile_is_refused(self, ground: Ground) -> None:
        id, token = ground.running(flags=8)
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line)
            late = ground.start(lambda late: save(ground, id, token, line=late))
            assert late.waits()
            line.commit()
            assert late.answer() is False
        assert ground.one("SELECT count(*) FROM lp.note WHERE job = %s", id) == 0

    def test_a_job_does_not_end_before_its_note_is_there(self, ground: Ground) -> None:
        id, token = ground.running(flags=8)
        with ground.open() as line:
            assert save(ground, id, token, line=line)
            late = ground.settling(fail(id, token))
            assert late.waits()
            line.commit()
            assert late.answer() == [FAILED]


class TestHandlersTransactions:
    """A handler has settled its job in a transaction of its own that is still open."""

    def note(self, ground: Ground, job: tuple[bytes, int], line: Line, result: bytes = b'"noted"') -> bool:
        return bool(ground.one("SELECT lp.settle_on_1(%s, %s, %s, %s)", *job, result, NOW, line=line))

    @pytest.mark.parametrize("ending", [Succeed, fail, bury, drop, Release])
    def test_a_settlement_that_comes_meanwhile_finds_what_it_committed(self, ground: Ground, ending: Ending) -> None:
        job = ground.running()
        with ground.open() as line:
            assert self.note(ground, job, line)
            late = ground.settling(ending(*job))
            assert late.waits()
            line.commit()
            assert late.answer() == [DONE]
        assert ground.one("SELECT body FROM lp.result WHERE id = %s", job[0]) == b'"noted"'
        assert ground.one("SELECT count(*) FROM lp.settled WHERE id = %s", job[0]) == 0

    def test_a_settlement_that_comes_meanwhile_is_applied_when_it_rolls_back(self, ground: Ground) -> None:
        job = ground.running()
        with ground.open() as line:
            assert self.note(ground, job, line)
            late = ground.settling(fail(*job))
            assert late.waits()
            line.rollback()
            assert late.answer() == [FAILED]

    def test_one_that_stays_open_decides_alone_and_holds_no_neighbour_up(self, ground: Ground) -> None:
        job, neighbour = ground.running(), ground.running()
        with ground.open() as line:
            assert self.note(ground, job, line)
            late = ground.settling(fail(*job), Succeed(*neighbour))
            assert late.answer() == [Settled("stale", State.running), DONE]
            line.commit()
        assert [ground.state(job[0]), ground.state(neighbour[0])] == [RUNNING, SUCCEEDED]
        assert ground.settle(Release(*job)) == [DONE]
        assert ground.one("SELECT body FROM lp.result WHERE id = %s", job[0]) == b'"noted"'

    def test_what_its_worker_gave_up_is_finished_by_the_sweeps(self, ground: Ground) -> None:
        job = ground.running()
        with ground.open() as line:
            assert self.note(ground, job, line)
            assert finish(ground, NOW + 60_000) == 0
            line.commit()
        assert finish(ground, NOW + 59_999) == 0
        with ground.open() as line:
            assert self.note(ground, job, line)
            finished = ground.start(lambda late: finish(ground, NOW + 60_000, line=late))
            assert not finished.waits()
            assert finished.answer() == 0
        assert finish(ground, NOW + 60_000) == 1
        assert ground.state(job[0]) == SUCCEEDED

    def test_notes_and_requests_to_stop_do_not_wait_for_it(self, ground: Ground) -> None:
        job = ground.running()
        with ground.open() as line:
            assert self.note(ground, job, line)
            for work in (lambda late: save(ground, *job, line=late), lambda late: cancel(ground, job[0], line=late)):
                call = ground.start(work)
                assert not call.waits()
                assert call.answer() in (True, [1])
            line.commit()
        assert ground.settle(drop(*job)) == [DONE]

    def test_a_sweep_leaves_it_alone(self, ground: Ground) -> None:
        job = ground.running()
        ground.one("UPDATE lp.lease SET hard_until_ms = 1 WHERE token = %s RETURNING 1", job[1])
        ground.one("UPDATE lp.sweep SET swept_at_ms = %s, calm_until_ms = 0 RETURNING 1", NOW)
        with ground.open() as line:
            assert self.note(ground, job, line)
            swept = ground.start(lambda late: sweep(ground, line=late))
            assert not swept.waits()
            assert swept.answer() == 0
            line.commit()
        assert sweep(ground) == 0
        assert ground.state(job[0]) == SUCCEEDED

    def test_one_whose_lease_ends_meanwhile_is_told(self, ground: Ground) -> None:
        job = ground.running()
        with ground.open() as line:
            ground.settle(fail(*job), line=line)
            late = ground.start(lambda late: self.note(ground, job, late))
            assert late.waits()
            line.commit()
            assert late.answer() is False
        assert ground.one("SELECT count(*) FROM lp.settled WHERE id = %s", job[0]) == 0


def cancel(ground: Ground, id: bytes, *, force: bool = False, line: Line | None = None) -> list[int]:
    query = "SELECT answers FROM lp.cancel_1(%s, %s, 'no', %s, %s)"
    return list(ground.one(query, ground.name(), [id], force, NOW, line=line))


def retry(ground: Ground, id: bytes, *, line: Line) -> None:
    query = "SELECT answers FROM lp.retry_1(%s, %s, 0::bigint, NULL, '{}', %s)"
    assert ground.one(query, ground.name(), [id], NOW, line=line) == [0]


def discard(ground: Ground, id: bytes, *, line: Line) -> int:
    return int(ground.one("SELECT gone FROM lp.discard_1(%s, %s, %s)", ground.name(), [id], NOW, line=line))


def sweep(ground: Ground, *, line: Line | None = None) -> int:
    return int(ground.one("SELECT taken FROM lp.expire_1(256, %s)", NOW, line=line))


def finish(ground: Ground, now_ms: int, *, line: Line | None = None) -> int:
    return int(ground.one("SELECT lp.finish_settled(9, %s)", now_ms, line=line))


def save(ground: Ground, id: bytes, token: int, *, line: Line) -> bool:
    query = "SELECT lp.save_1(%s, %s, 'step', 'charge', '1', %s)"
    return bool(ground.one(query, id, token, NOW, line=line))
