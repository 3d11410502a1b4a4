"""What is committed in an outbox arrives in the store: once, in order, and nothing that is wrong stops the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Sequence

import pytest

from limpet.core.errors import SchemaOutdated
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job, Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.outbox.row import MAGIC, VERSION
from limpet.outbox.table import BATCH_BYTES
from limpet.stores.base import MARK
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.outbox.ground import Ground, drain, texts
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared

pytestmark = pytest.mark.postgres

JUNK = b"not a job"
NEWER = MAGIC + bytes([VERSION + 1]) + b"whatever that means"


async def mark(bench: Bench) -> Control | None:
    found = await bench.store.controls(MARK)
    return found[0] if found else None


def spoil(ground: Ground, id: bytes, body: bytes) -> None:
    """Put other bytes in a row's place."""
    sign = "?" if ground.place.dialect == "sqlite" else "%s"
    with ground.transaction() as conn:
        conn.execute(f"UPDATE limpet_outbox SET job = {sign} WHERE id = {sign}", (body, id_text(id)))


def errors(ground: Ground) -> dict[str, str]:
    """What is set aside, and why."""
    return dict(ground.ask("SELECT id, error FROM limpet_outbox WHERE error IS NOT NULL ORDER BY seq"))


# -- arriving


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_what_was_committed_arrives_in_order_and_leaves_the_outbox(
    ground: Ground, bench: Bench, batch: int
) -> None:
    ids = await ground.add(10)
    carrier = ground.carrier(bench.store, batch=batch)
    await drain(carrier)
    assert ground.left() == []
    assert carrier.report.relayed == 10
    assert await bench.hand().drain(4) == ids


async def test_what_was_rolled_back_or_is_still_open_does_not_arrive(ground: Ground, bench: Bench) -> None:
    with contextlib.closing(ground.connect()) as conn:
        await ground.outbox.put(conn, [ground.job()])
        conn.rollback()
        carrier = ground.carrier(bench.store)
        await drain(carrier)
        job = ground.job()
        await ground.outbox.put(conn, [job])
        await drain(carrier)
        assert (await bench.store.count()).enqueued == 0
        conn.commit()
    await drain(carrier)
    assert await bench.hand().drain() == [job.id]


async def test_a_row_that_becomes_visible_late_is_not_passed_over(postgres_ground: Ground, bench: Bench) -> None:
    ground = postgres_ground  # SQLite has one writer at a time: a lower number is never committed later
    with contextlib.closing(ground.connect()) as slow, contextlib.closing(ground.connect()) as quick:
        late, early = ground.job(), ground.job()
        await ground.outbox.put(slow, [late])
        await ground.outbox.put(quick, [early])
        quick.commit()
        carrier = ground.carrier(bench.store)
        await drain(carrier)
        assert await bench.hand().drain() == [early.id]
        slow.commit()
        await drain(carrier)
        assert await bench.hand().drain() == [late.id]


async def test_many_jobs_of_one_transaction_keep_their_order(ground: Ground, bench: Bench) -> None:
    jobs = [ground.job(queue=f"q{n % 3}") for n in range(60)]
    await ground.write(*jobs)
    assert ground.left() == texts([job.id for job in jobs])
    await drain(ground.carrier(bench.store, batch=7))
    for queue in range(3):
        assert await bench.hand(f"w{queue}", queues=(f"q{queue}",)).drain() == [job.id for job in jobs[queue::3]]


async def test_everything_a_job_says_arrives(ground: Ground, bench: Bench) -> None:
    parent = ground.job(task="first", queue="a", priority=3)
    job = ground.job(
        task="second",
        tenant="acme",
        limits=("smtp",),
        keys=("customer:7",),
        needs=("gpu",),
        args=b'{"x":1}',
        unique=Unique("k", for_ms=60_000),
        after=(parent.id,),
        if_parent_fails="run",
        cost=3,
        tags=("eu",),
        meta=b'{"trace":"1"}',
        flow=parent.id,
    )
    rules = [GateRule("limit:smtp", concurrency=2), GateRule("limit:customer:7", interval_us=1_000, burst=9)]
    await ground.write(parent)
    await ground.write(job, rules=[*rules, GateRule("limit:of another job", concurrency=1)])
    await drain(ground.carrier(bench.store))
    view = await bench.view(job.id)
    assert (view.lane, view.state, view.args) == (job.lane, State.blocked, job.args)
    assert (view.cost, view.tags, view.flow, view.after) == (3, ("eu",), parent.id, (parent.id,))
    gates = {gate.key: gate.rule for gate in await bench.store.gates("limit:")}
    assert gates == {rule.key: rule for rule in rules}


async def test_a_batch_is_bounded_by_its_bytes_and_never_empty(ground: Ground, bench: Bench) -> None:
    large = b'{"x":"' + b"x" * (BATCH_BYTES // 2) + b'"}'
    ids = await ground.add(4, args=large)
    carrier = ground.carrier(bench.store)
    assert await drain(carrier) == ["moved", "moved", "moved", "idle"]
    huge = b'{"x":"' + b"x" * (BATCH_BYTES + 1) + b'"}'
    ids += await ground.add(2, args=huge)
    await drain(carrier)
    assert await bench.hand().drain() == ids


async def test_a_namespace_sees_nothing_of_another(ground: Ground, bench: Bench) -> None:
    other = Ground(ground.url, "other")
    await other.add(1)
    ids = await ground.add(1)
    await drain(ground.carrier(bench.store))
    assert await bench.hand().drain() == ids
    assert len(ground.left()) == 1
    await other.close()


# -- once


async def test_a_batch_that_arrived_unheard_is_not_sent_twice(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(3)
    first = ground.carrier(bench.store)
    await first.step()  # stamped, and not yet sent
    async with ground.table().turn() as turn:
        assert turn is not None
        rows = await turn.under_way()
        assert [row.id for row in rows] == texts(ids)
        await bench.store.relay(turn.source, turn.batch, [])  # as if by a relay that was killed before it heard
    second = ground.carrier(bench.store)
    await drain(second)
    assert second.report.relayed == 3
    assert ground.left() == []
    assert (await bench.store.count()).enqueued == 0  # the store said that it has them: they are not sent


async def test_two_relays_share_one_outbox(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(40)
    carriers = [ground.carrier(bench.store, batch=3) for _ in range(2)]
    await asyncio.gather(*map(drain, carriers))
    assert (await bench.store.count()).enqueued == 40
    assert await bench.hand().drain() == ids
    assert ground.left() == []


async def test_a_relay_that_was_overtaken_changes_nothing(sqlite_ground: Ground, bench: Bench) -> None:
    ground = sqlite_ground  # on PostgreSQL a turn keeps the others out
    ids = await ground.add(4)
    slow, quick = ground.table(), ground.carrier(bench.store, batch=2)
    await quick.step()
    async with slow.turn() as turn:
        assert turn is not None
        rows = await turn.under_way()
        assert [row.id for row in rows] == texts(ids[:2])
        await quick.step()  # sees it through, and stamps the other two
        async with ground.table().turn() as newer:
            assert newer is not None
            await bench.store.relay(newer.source, newer.batch, [])  # as if they had arrived, unheard
        await turn.set_aside(rows[0].seq, "by the slow one")
        await turn.stamp(turn.batch, ())
    await drain(quick)
    assert ground.left() == []
    assert await bench.hand().drain() == ids[:2]


def copy_of(ground: Ground) -> Ground:
    """The same rows in another database; nobody may use the first meanwhile."""
    if ground.place.dialect == "sqlite":
        shutil.copy(str(ground.place.database), f"{ground.place.database}.copy")
        return Ground(f"sqlite:///{ground.place.database}.copy?sync=normal")
    name = f"{ground.place.database}_copy"
    shared(POSTGRES).ask(f"CREATE DATABASE {name} TEMPLATE {ground.place.database}")
    return Ground(ground.url.replace(f"/{ground.place.database}", f"/{name}"))


class Stopped:
    """A clock that has stopped, which makes two relays choose the same numbers."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def time_ns() -> int:
        return 0


async def test_two_copies_of_a_database_lose_nothing_of_each_other(
    ground: Ground, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both count on from where they were copied, and neither takes what the other has sent for its own."""
    monkeypatch.setattr("limpet.outbox.carrier.time", Stopped)
    await ground.add(1)
    await drain(ground.carrier(bench.store))
    await ground.close()
    copy = copy_of(ground)
    ids = await ground.add(3) + await copy.add(3)
    carriers = [each.carrier(bench.store, batch=1) for each in (ground, copy)]
    for _ in range(4):
        for carrier in carriers:
            await carrier.step()  # both stamp before either sends
    for carrier in carriers:
        await drain(carrier)
    assert set(ids) <= set(await bench.hand().drain())
    assert ground.left() == copy.left() == []
    await copy.close()


async def test_a_database_that_moves_takes_its_batch_along_and_gets_a_new_name(ground: Ground, bench: Bench) -> None:
    source = "cafe@somewhere else"
    ids = await ground.add(3)
    await ground.carrier(bench.store).step()  # stamped, and not yet sent
    ground.ask(f"UPDATE limpet_outbox_relay SET source = '{source}'")
    async with ground.table().turn() as turn:
        assert turn is not None
        await bench.store.relay(source, turn.batch, [])  # as if it had arrived, unheard, before the move
    more = await ground.add(2)
    await drain(ground.carrier(bench.store, batch=1))
    assert ground.left() == []
    assert await bench.hand().drain() == more  # and not those of `ids` once more
    assert not set(ids) & set(more)
    ((name,),) = ground.ask("SELECT source FROM limpet_outbox_relay")
    assert name.partition("@")[0] != "cafe"
    assert {each.name for each in await bench.store.controls(MARK)} == {source, name}


async def test_a_turn_keeps_the_others_out(postgres_ground: Ground, bench: Bench) -> None:
    ground = postgres_ground  # on SQLite a transaction that is held would stop the application
    await ground.add(1)
    async with ground.table().turn() as turn:
        assert turn is not None
        assert await ground.carrier(bench.store).step() == "busy"
    await drain(ground.carrier(bench.store))
    assert ground.left() == []


async def test_rows_that_come_back_with_a_backup_are_sent_again_and_are_the_same_jobs(
    ground: Ground, bench: Bench
) -> None:
    """The number of their batch is older than the store's mark by then: they must be neither lost nor doubled."""
    ids = await ground.add(2)
    carrier = ground.carrier(bench.store)
    await carrier.step()
    async with ground.table().turn() as turn:
        assert turn is not None
        source, batch = turn.source, turn.batch
    never = await ground.add(1)  # of this row the store has not heard
    await bench.store.relay(source, batch + 1, [])
    await drain(ground.carrier(bench.store))
    assert ground.left() == []
    assert await bench.hand().drain() == ids + never
    found = await mark(bench)
    assert found is not None
    assert int(found.value) > batch + 1


async def test_a_number_is_larger_than_the_stores_mark_whatever_the_clock_says(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(1)
    async with ground.table().turn() as turn:
        assert turn is not None
        far = time.time_ns() // 1_000 + 86_400_000_000
        await bench.store.relay(turn.source, far, [])
    await drain(ground.carrier(bench.store))
    assert await bench.hand().drain() == ids
    found = await mark(bench)
    assert found is not None
    assert int(found.value) == far + 1


async def test_each_outbox_has_a_name_of_its_own_in_the_store(ground: Ground, bench: Bench) -> None:
    await ground.add(1)
    await drain(ground.carrier(bench.store))
    (source,) = ground.ask("SELECT source FROM limpet_outbox_relay")[0]
    found = await mark(bench)
    assert found is not None
    assert found.name == source
    await ground.add(1)
    await drain(ground.carrier(bench.store))
    assert [(source,)] == ground.ask("SELECT source FROM limpet_outbox_relay")


async def test_a_row_that_somebody_removed_while_it_was_under_way_is_left_out(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(3)
    carrier = ground.carrier(bench.store)
    await carrier.step()
    ground.ask(f"DELETE FROM limpet_outbox WHERE id = '{id_text(ids[1])}'")
    await drain(carrier)
    assert await bench.hand().drain() == [ids[0], ids[2]]


# -- time


async def test_delay_and_expiry_count_from_the_enqueue_not_from_the_relay(ground: Ground, bench: Bench) -> None:
    jobs = [ground.job(delay_ms=50_000), ground.job(delay_ms=5_000), ground.job(expires_ms=5_000), ground.job()]
    await ground.write(*jobs)
    ground.ask("UPDATE limpet_outbox SET created_at_ms = created_at_ms - 20000")  # the relay was away so long
    now_ms = time.time_ns() // 1_000_000
    await drain(ground.carrier(bench.store))
    late, due, expired, plain = [await bench.view(job.id) for job in jobs]
    assert late.state is State.scheduled
    assert abs(late.due_at_ms - (now_ms + 30_000)) < 10_000
    assert (due.state, plain.state) == (State.ready, State.ready)
    bench.clock.now_ms = now_ms + 10_000
    assert await bench.hand().ids(9) == [due.id, plain.id]
    assert await bench.state(expired.id) is State.cancelled


# -- duplicates


async def test_a_duplicate_is_answered_by_the_job_that_is_there_and_said_so(
    ground: Ground, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, other = (ground.job(unique=Unique(key)) for key in ("k", "k", "l"))
    await ground.write(first, second)
    await ground.write(other)
    carrier = ground.carrier(bench.store)
    with caplog.at_level(logging.INFO, "limpet.outbox"):
        await drain(carrier)
    assert (carrier.report.relayed, carrier.report.duplicates) == (3, 1)
    assert await bench.states([first.id, second.id, other.id]) == [State.ready, None, State.ready]
    (line,) = [record for record in caplog.records if record.message.startswith("duplicate")]
    said = line.__dict__["limpet"]
    assert (said["job_id"], said["stands_for"]) == (id_text(second.id), id_text(first.id))


async def test_the_same_job_written_twice_is_one_job(ground: Ground, bench: Bench) -> None:
    job = ground.job()
    await ground.write(job)
    await ground.write(job)
    await drain(ground.carrier(bench.store, batch=1))
    assert (await bench.store.count()).enqueued == 1


# -- rows that cannot go


async def test_a_row_that_cannot_be_read_is_set_aside_and_the_rest_goes_on(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(7)
    for id, body in ((ids[0], JUNK), (ids[3], MAGIC + bytes([VERSION]) + JUNK), (ids[4], b""), (ids[6], MAGIC)):
        spoil(ground, id, body)
    carrier = ground.carrier(bench.store)
    await drain(carrier)
    assert await bench.hand().drain() == [ids[1], ids[2], ids[5]]
    assert (carrier.report.relayed, carrier.report.failed) == (3, 4)
    assert list(errors(ground)) == texts([ids[0], ids[3], ids[4], ids[6]])
    assert all("does not hold a job" in why for why in errors(ground).values())


@pytest.mark.parametrize("bad", [0, 5, 12, 19])
async def test_a_job_that_the_store_refuses_is_set_aside_and_the_rest_keeps_its_order(
    ground: Ground, bench: Bench, bad: int
) -> None:
    jobs = [ground.job(after=(ground.ids.make(1),)) if n == bad else ground.job() for n in range(20)]
    await ground.write(*jobs)
    carrier = ground.carrier(bench.store)
    await drain(carrier)
    assert await bench.hand().drain() == [job.id for n, job in enumerate(jobs) if n != bad]
    assert list(errors(ground)) == texts([jobs[bad].id])
    assert "which is not stored" in errors(ground)[id_text(jobs[bad].id)]
    assert ground.left() == texts([jobs[bad].id])


async def test_after_a_bad_job_batches_grow_again(ground: Ground, bench: Bench) -> None:
    jobs = [ground.job(after=(ground.ids.make(1),)), *(ground.job() for _ in range(39))]
    await ground.write(*jobs)
    carrier = ground.carrier(bench.store, batch=10)
    await drain(carrier)
    await ground.write(*(ground.job() for _ in range(40)))
    assert await drain(carrier) == ["moved"] * 5 + ["idle"]


async def test_what_was_set_aside_can_be_tried_again(ground: Ground, bench: Bench) -> None:
    parent = ground.job()
    child = ground.job(after=(parent.id,))
    await ground.write(child)
    carrier = ground.carrier(bench.store)
    await drain(carrier)
    table = ground.table()
    tally = await table.tally()
    assert (tally.waiting, tally.failed, tally.oldest_ms) == (0, 1, None)
    (failed,) = await table.failed(10)
    assert (failed.id, failed.queue, failed.task) == (id_text(child.id), "default", "work")
    await bench.put(parent)
    assert await table.retry_failed() == 1
    assert await table.retry_failed() == 0
    await drain(carrier)
    bench.clock.advance(60_000)  # past the instant at which the relay's own call was made
    assert await bench.hand().drain() == [parent.id, child.id]
    assert ground.left() == []


class Brittle(SqliteStore):
    """The real engine, but for jobs with a tag: not every bad job is refused politely."""

    async def relay(
        self,
        source: str,
        batch: int,
        jobs: Sequence[Job],
        rules: Sequence[GateRule] = (),
        *,
        always: bool = False,
        now_ms: int | None = None,
    ) -> list[Enqueued] | None:
        if any(job.tags for job in jobs):
            raise OverflowError("int too big to convert")
        return await super().relay(source, batch, jobs, rules, always=always, now_ms=now_ms)


async def test_a_job_that_breaks_what_sends_it_is_set_aside_too(ground: Ground) -> None:
    bench = Bench(Brittle(None), Clock())
    good, bad = ground.job(), ground.job(tags=("x",))
    await ground.write(bad, good)
    await drain(ground.carrier(bench.store))
    assert await bench.hand().drain() == [good.id]
    assert errors(ground) == {id_text(bad.id): "OverflowError: int too big to convert"}
    await bench.store.close()


async def test_jobs_of_a_draining_queue_wait_in_their_order_and_others_pass(ground: Ground, bench: Bench) -> None:
    await bench.change(GateChange("queue:old", drain=True))
    waiting = [ground.job(queue="old") for _ in range(3)]
    passing = [ground.job() for _ in range(3)]
    for one, other in zip(waiting, passing, strict=True):
        await ground.write(one, other)
    carrier = ground.carrier(bench.store)
    await drain(carrier)
    assert await bench.hand().drain() == [job.id for job in passing]
    assert ground.left() == texts([job.id for job in waiting])
    assert errors(ground) == {}
    await bench.change(GateChange("queue:old", resume=True))
    await drain(ground.carrier(bench.store))
    assert await bench.hand().drain() == [job.id for job in waiting]


async def test_jobs_of_a_full_queue_wait_in_their_order_and_go_on_as_room_comes(ground: Ground, bench: Bench) -> None:
    await bench.change(GateChange("queue:old", rule=GateRule("queue:old", depth=2)))
    waiting = [ground.job(queue="old") for _ in range(5)]
    passing = ground.job()
    await ground.write(*waiting, passing)
    done: list[bytes] = []
    for _ in range(5):
        await drain(ground.carrier(bench.store))  # a new relay tries at once what the last one had put off
        assert (await bench.store.count()).total(State.ready) <= 3
        done += await bench.hand().drain()
    assert (errors(ground), ground.left()) == ({}, [])
    assert [id for id in done if id != passing.id] == [job.id for job in waiting]
    assert passing.id in done[:3]


async def test_a_child_waits_while_its_parent_does(ground: Ground, bench: Bench) -> None:
    await bench.change(GateChange("queue:old", drain=True))
    parent = ground.job(queue="old")
    child = ground.job(after=(parent.id,))
    await ground.write(parent, child)
    await drain(ground.carrier(bench.store))
    assert ground.left() == texts([parent.id, child.id])
    assert errors(ground) == {}
    await bench.change(GateChange("queue:old", resume=True))
    await drain(ground.carrier(bench.store))
    bench.clock.advance(60_000)
    assert await bench.hand().drain() == [parent.id, child.id]


# -- other releases


async def test_a_row_of_a_newer_release_stops_the_line_until_the_relay_is_upgraded(
    ground: Ground, bench: Bench
) -> None:
    ids = await ground.add(5)
    spoil(ground, ids[2], NEWER)
    carrier = ground.carrier(bench.store)
    with pytest.raises(SchemaOutdated, match=f"job {id_text(ids[2])} lies in the outbox in form {VERSION + 1}"):
        await drain(carrier)
    assert await bench.hand().drain() == ids[:2]
    assert ground.left() == texts(ids[2:])
    assert errors(ground) == {}


async def test_a_batch_that_an_upgraded_relay_stamped_is_not_split_by_an_older_one(
    ground: Ground, bench: Bench
) -> None:
    ids = await ground.add(2)
    carrier = ground.carrier(bench.store)
    await carrier.step()
    async with ground.table().turn() as turn:
        assert turn is not None
        await bench.store.relay(turn.source, turn.batch, [])
    spoil(ground, ids[1], NEWER)
    await drain(carrier)  # it cannot read the second, and sees that both have arrived
    assert ground.left() == []
    assert carrier.report.relayed == 2


async def test_a_row_that_was_spoilt_after_it_was_stamped_is_set_aside(ground: Ground, bench: Bench) -> None:
    ids = await ground.add(3)
    carrier = ground.carrier(bench.store)
    await carrier.step()
    spoil(ground, ids[1], JUNK)
    await drain(carrier)
    assert await bench.hand().drain() == [ids[0], ids[2]]
    assert list(errors(ground)) == texts([ids[1]])
