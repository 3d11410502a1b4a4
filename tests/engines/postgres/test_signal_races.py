"""A signal beside everything that can happen to its job at the same time: one of the two always sees the other."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from limpet.core.endings.transition import RetryAfter, Settled, Succeed, Suspend
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet_contract.hand import failure
from tests.engines.postgres.races import NOW, Ground
from tests.engines.postgres.schemas import fresh_schema
from tests.servers.installations import POSTGRES

SCHEDULED, READY, RUNNING = (state.code for state in (State.scheduled, State.ready, State.running))
GO_ON, SLEEP = Settled("done", State.ready), Settled("done", State.scheduled)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with fresh_schema(POSTGRES, rooms="89") as schema:
        yield Ground(schema)


def notes(ground: Ground, id: bytes) -> list[tuple[str, str]]:
    return [
        (kind, name)
        for kind, name in ground.schema.ask("SELECT kind, name FROM lp.note WHERE job = %s ORDER BY kind, name", id)
    ]


def posted(ground: Ground, id: bytes) -> int:
    """How many ready jobs were posted by the name of this one."""
    return int(ground.one("SELECT coalesce(sum(n), 0) FROM lp.post WHERE id = %s", id))


def asleep(ground: Ground, event: str = "go") -> bytes:
    """A job that waits for an event."""
    id, token = ground.running()
    assert ground.settle(Suspend(id, token, None, (event,))) == [SLEEP]
    return id


class TestTheSettlementThatSuspends:
    def test_is_waited_for_and_the_job_is_woken(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            assert ground.settle(Suspend(id, token, None, ("go",)), line=line) == [SLEEP]
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert signal.waits()
            line.commit()
            assert signal.answer() == ["woken"]
        assert (ground.state(id), notes(ground, id), posted(ground, id)) == (READY, [("event", "go")], 1)

    def test_waits_for_the_signal_and_goes_on_at_once(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            assert ground.signal(Signal(id, "go", b"1"), line=line) == ["kept"]
            settling = ground.settling(Suspend(id, token, None, ("go",)))
            assert settling.waits()
            line.commit()
            assert settling.answer() == [GO_ON]
        assert (ground.state(id), notes(ground, id), posted(ground, id)) == (READY, [("event", "go")], 1)

    def test_is_one_of_many_in_one_call(self, ground: Ground) -> None:
        jobs = [ground.running() for _ in range(3)]
        (id, _), signalled = jobs[0], [id for id, _ in jobs[1:]]
        with ground.open() as line:
            assert ground.signal(*(Signal(id, "go", b"1") for id in signalled), line=line) == ["kept", "kept"]
            settling = ground.settling(*(Suspend(*job, None, ("go",)) for job in jobs))
            assert settling.waits()
            line.commit()
            assert settling.answer() == [SLEEP, GO_ON, GO_ON]
        assert notes(ground, id) == [("waiting", "go")]

    def test_comes_to_nothing_and_the_event_is_kept(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(Suspend(id, token, None, ("go",)), line=line)
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert signal.waits()
            line.rollback()
            assert signal.answer() == ["kept"]
        assert (ground.state(id), notes(ground, id)) == (RUNNING, [("event", "go")])

    def test_sleeps_when_the_signal_comes_to_nothing(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.signal(Signal(id, "go", b"1"), line=line)
            settling = ground.settling(Suspend(id, token, None, ("go",)))
            assert settling.waits()
            line.rollback()
            assert settling.answer() == [SLEEP]
        assert notes(ground, id) == [("waiting", "go")]

    def test_of_two_jobs_in_the_order_opposite_to_the_signals_locks_nobody_out(self, ground: Ground) -> None:
        jobs = [ground.running() for _ in range(2)]
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT FROM lp.running WHERE id = %s FOR UPDATE"), (jobs[0][0],))
            signal = ground.signalling(*(Signal(id, "go", b"1") for id, _ in jobs))
            assert signal.waits()
            settling = ground.settling(*(Suspend(*job, None, ("go",)) for job in reversed(jobs)))
            settling.waits()
            line.commit()
            answers = [*signal.answer(), *(str(answer.state) for answer in settling.answer())]
        assert {ground.state(id) for id, _ in jobs} == {READY}, answers


class TestOtherEnds:
    def test_a_job_that_succeeds_meanwhile_takes_no_signal(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(Succeed(id, token), line=line)
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert signal.waits()
            line.commit()
            assert signal.answer() == ["finished"]
        assert notes(ground, id) == []

    def test_an_event_is_kept_for_a_job_that_fails_meanwhile(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            ground.settle(RetryAfter(id, token, failure(), 1_000), line=line)
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert signal.waits()
            line.commit()
            assert signal.answer() == ["kept"]
        assert (ground.state(id), notes(ground, id)) == (SCHEDULED, [("event", "go")])
        assert ground.one("SELECT flags FROM lp.wait WHERE id = %s", id) & 8, "its next claim would not look for notes"

    def test_a_handlers_own_transaction_is_not_waited_for(self, ground: Ground) -> None:
        id, token = ground.running()
        with ground.open() as line:
            assert ground.one("SELECT lp.settle_on_1(%s, %s, NULL, %s)", id, token, NOW, line=line)
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert not signal.waits()
            assert signal.answer() == ["kept"]
            line.commit()
        assert ground.settle(Suspend(id, token, None, ("go",))) == [Settled("done", State.succeeded)]

    def test_a_job_that_is_claimed_meanwhile_has_the_event(self, ground: Ground) -> None:
        """Its row of `running` was not there to be locked, and its row of `wait` is gone: they are looked for again."""
        job, moved = ground.job(), ground.moved
        ground.enqueue(job)
        with ground.open() as line:
            ground.claim(job.id, line)
            signal = ground.signalling(Signal(job.id, "go", b"1"))
            assert signal.waits()
            line.commit()
            assert signal.answer() == ["kept"]
        assert ground.moved > moved, "it could suspend between the look and the note"
        assert (ground.state(job.id), notes(ground, job.id)) == (RUNNING, [("event", "go")])
        assert ground.one("SELECT flags FROM lp.running WHERE id = %s", job.id) & 8

    def test_a_wait_that_is_over_in_time_keeps_the_event(self, ground: Ground) -> None:
        id, token = ground.running()
        ground.settle(Suspend(id, token, 1, ("go",)))
        with ground.open() as line:
            line.execute(ground.schema.sql("UPDATE lp.wait SET state = 2 WHERE id = %s"), (id,))  # as a claim promotes
            ground.claim(id, line)
            signal = ground.signalling(Signal(id, "go", b"1"))
            assert signal.waits()
            line.commit()
            assert signal.answer() == ["kept"]
        assert notes(ground, id) == [("event", "go"), ("waiting", "go")]


class TestTwoSignals:
    def test_of_one_event_the_first_stands(self, ground: Ground) -> None:
        id = asleep(ground)
        with ground.open() as line:
            assert ground.signal(Signal(id, "go", b"1"), line=line) == ["woken"]
            second = ground.signalling(Signal(id, "go", b"2"))
            assert second.waits()
            line.commit()
            assert second.answer() == ["already"]
        assert ground.one("SELECT body FROM lp.note WHERE job = %s", id) == b"1"
        assert posted(ground, id) == 1

    def test_of_different_events_wake_once(self, ground: Ground) -> None:
        id = asleep(ground)
        with ground.open() as line:
            assert ground.signal(Signal(id, "go", b"1"), line=line) == ["woken"]
            second = ground.signalling(Signal(id, "stop", b"2"))
            assert second.waits()
            line.commit()
            assert second.answer() == ["kept"]
        assert (ground.state(id), posted(ground, id)) == (READY, 1)

    def test_of_different_jobs_never_meet(self, ground: Ground) -> None:
        one, two = asleep(ground), asleep(ground)
        with ground.open() as line:
            ground.signal(Signal(one, "go", b"1"), line=line)
            other = ground.signalling(Signal(two, "go", b"1"))
            assert not other.waits()
            line.commit()

    def test_in_opposite_orders_do_not_lock_each_other_out(self, ground: Ground) -> None:
        ids = [asleep(ground) for _ in range(2)]
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT FROM lp.wait WHERE id = %s FOR UPDATE"), (ids[0],))
            up = ground.signalling(*(Signal(id, "go", b"1") for id in ids))
            assert up.waits()
            down = ground.signalling(*(Signal(id, "go", b"1") for id in reversed(ids)))
            assert down.waits()
            line.execute(ground.schema.sql("SELECT FROM lp.wait WHERE id = %s FOR UPDATE NOWAIT"), (ids[1],))
            line.commit()
            assert sorted([up.answer(), down.answer()]) == [["already", "already"], ["woken", "woken"]]


class TestOthers:
    def test_whoever_keeps_a_job_from_ending_is_not_in_the_way(self, ground: Ground) -> None:
        """A child is being enqueued, and its parent is held still meanwhile, running or not."""
        (running, _), waiting = ground.running(), asleep(ground)
        with ground.open() as line:
            ground.enqueue(ground.job(after=(running, waiting)), line=line)
            signal = ground.signalling(Signal(running, "go", b"1"), Signal(waiting, "go", b"1"))
            assert not signal.waits()
            assert signal.answer() == ["kept", "woken"]
            line.commit()

    def test_a_settlement_outlasts_a_signal_that_waits_for_somebodys_transaction(self, ground: Ground) -> None:
        """A caller's own transaction is about to replace one of the jobs: it may take its time."""
        # A signal gives up after 250 ms. On a busy machine the settlement may come later than that: then once more.
        assert any(self.settlement_meets_signal(ground) for _ in range(20)), "no settlement came in time"

    def settlement_meets_signal(self, ground: Ground) -> bool:
        (running, token), waiting = ground.running(), asleep(ground)
        with ground.open() as line:
            line.execute(ground.schema.sql("SELECT FROM lp.wait WHERE id = %s FOR UPDATE"), (waiting,))
            signals = Signal(running, "go", b"1"), Signal(waiting, "go", b"1")
            signal = ground.start(lambda own: ground.signal(*signals, line=own, patient=False))
            assert signal.waits()
            settling = ground.settling(Succeed(running, token))
            met = settling.waits()
            assert settling.answer() == [Settled("done", State.succeeded)]
            with pytest.raises(psycopg.errors.LockNotAvailable):
                signal.answer()
            line.rollback()
        assert notes(ground, running) == []
        return met
