"""What a running job knows about itself, and what it may write down."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from limpet.core.endings.transition import Drop
from limpet.core.errors import NotSerialisable, PayloadTooLarge, StoreUnreachable, WrongContext
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Note, Pulse
from limpet.core.jobs.state import State
from limpet.core.tasks.codec import decode_json
from limpet.runtime import JobContext, LeaseLost, WorkerEvents, current_job, keeper
from tests.runtime.running import Bench


async def test_a_job_knows_who_it_is(bench: Bench) -> None:
    def identity() -> list[object]:
        job = current_job()
        return [job.id, job.attempt, job.task, job.queue, job.tenant, list(job.tags), job.cancelled, job.meta]

    id = await bench.put(bench.task(identity), queue="mail", tenant="acme", tags=["eu"])
    await bench.drain({"queues": ("mail",)})
    found = msgspec.json.decode((await bench.view(id)).result or b"")
    assert found == [id_text(id), 1, "identity", "mail", "acme", ["eu"], False, {}]


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(WrongContext, match="no job is running"):
        current_job()


async def test_the_token_grows_with_every_claim(bench: Bench) -> None:
    tokens: list[int] = []

    async def fails() -> None:
        tokens.append(current_job().token)
        raise ConnectionError

    await bench.put(bench.task(fails, retry=[0, 0]))
    await bench.drain()
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


async def test_progress_and_log_lines_ride_on_the_next_beat(bench: Bench) -> None:
    noted, go_on = asyncio.Event(), asyncio.Event()

    async def talks() -> None:
        job = current_job()
        job.progress(1, 10, "first")
        job.progress(2, 10, "second")
        job.log("a line")
        noted.set()
        await go_on.wait()

    id = await bench.put(bench.task(talks))
    stop, beaten = asyncio.Event(), asyncio.Event()
    worker = bench.worker({"beat_ms": 10}, events=WorkerEvents(on_beat=beaten.set))
    work = asyncio.create_task(worker.run(stop))
    await noted.wait()
    notes: tuple[Note, ...] = ()
    while not notes:  # the beat that was under way when the handler spoke does not carry it yet
        await beaten.wait()
        beaten.clear()
        notes = (await bench.view(id)).notes
    go_on.set()
    stop.set()
    await work
    by_kind = {note.kind: msgspec.json.decode(note.body) for note in notes}
    assert by_kind == {"progress": {"done": 2, "total": 10, "message": "second"}, "log": "a line"}


@pytest.mark.parametrize("end", ["succeeded", "dead", "scheduled"])
async def test_what_a_job_said_last_is_written_before_it_ends(bench: Bench, end: str) -> None:
    async def talks() -> None:
        job = current_job()
        job.log("a line")
        job.progress(10, 10)
        if end == "dead":
            raise ValueError
        if end == "scheduled":
            await job.sleep("1h")

    id = await bench.put(bench.task(talks))
    await bench.drain({"beat_ms": 600_000, "ttl_ms": 1_800_000})
    view = await bench.view(id)
    assert view.state.value == end
    said = {note.kind: msgspec.json.decode(note.body) for note in view.notes}
    assert (said["log"], said["progress"]["done"]) == ("a line", 10)


async def test_a_job_ends_even_if_its_last_words_cannot_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "LAST_WORDS_S", 0.01)
    beat = bench.store.beat

    async def refuses_notes(said: Beat) -> Pulse:
        if said.notes:
            raise StoreUnreachable("away", verb="beat")
        return await beat(said)

    monkeypatch.setattr(bench.store, "beat", refuses_notes)

    async def talks() -> None:
        current_job().log("a line")

    id = await bench.put(bench.task(talks))
    await bench.drain({"grace_ms": 0})
    assert (await bench.view(id)).state is State.succeeded


async def test_a_checkpoint_is_there_for_the_next_attempt(bench: Bench) -> None:
    seen: list[object] = []

    async def steps() -> None:
        job = current_job()
        seen.append(job.checkpoint)
        if job.attempt == 1:
            await job.save({"page": 7})
            seen.append(job.checkpoint)
            raise ConnectionError

    await bench.put(bench.task(steps, retry=[0]))
    await bench.drain()
    assert seen == [None, {"page": 7}, {"page": 7}]


async def test_a_sync_task_saves_through_its_workers_loop(bench: Bench) -> None:
    def saves() -> object:
        job = current_job()
        job.run(job.save([1, 2]))
        return job.checkpoint

    id = await bench.put(bench.task(saves))
    await bench.drain()
    assert (await bench.view(id)).result == b"[1,2]"


async def test_waiting_for_an_awaitable_inside_the_loop_is_refused(bench: Bench) -> None:
    refused: list[str] = []

    async def blocks() -> None:
        job = current_job()
        saving = job.save(1)
        try:
            job.run(saving)
        except WrongContext as error:
            refused.append(error.fix)
        saving.close()

    await bench.put(bench.task(blocks))
    await bench.drain()
    assert refused == ["await it instead"]


async def test_a_checkpoint_must_be_small_plain_json(bench: Bench) -> None:
    async def wrong() -> list[str]:
        found = []
        for value in ({"at": object()}, "x" * 300_000, {"loss": float("nan")}, {1: 0, "1": 1}):
            try:
                await current_job().save(value)
            except (NotSerialisable, PayloadTooLarge) as error:
                found.append(error.message)
        return found

    id = await bench.put(bench.task(wrong))
    await bench.drain()
    assert decode_json((await bench.view(id)).result) == [
        "the checkpoint.at is a object, which has no stored form",
        "the checkpoint takes 300,002 bytes, over 262,144",
        "the checkpoint.loss is nan, which JSON cannot hold",
        "the checkpoint has the keys 1 and '1', which JSON writes alike",
    ]


async def test_notes_may_hold_any_text(bench: Bench) -> None:
    async def speaks() -> None:
        current_job().log("caf\udce9")
        current_job().progress(1, 2, "caf\udce9")

    id = await bench.put(bench.task(speaks))
    await bench.drain({"beat_ms": 5})
    assert (await bench.view(id)).state is State.succeeded


async def test_a_stale_attempt_cannot_save_and_its_outcome_is_dropped(bench: Bench) -> None:
    started, taken = asyncio.Event(), asyncio.Event()
    errors: list[Exception] = []
    contexts: list[JobContext] = []

    async def slow() -> str:
        contexts.append(current_job())
        started.set()
        await taken.wait()
        try:
            await current_job().save("late")
        except LeaseLost as error:
            errors.append(error)
        return "late"

    id = await bench.put(bench.task(slow))
    stop = asyncio.Event()
    worker = bench.worker()
    work = asyncio.create_task(worker.run(stop))
    await started.wait()
    token = (await bench.view(id)).token
    assert token is not None
    await bench.store.settle("its supervisor", 1, [Drop(id, token, "taken for dead")])  # it is not told
    taken.set()
    stop.set()
    report = await work
    assert [type(error) for error in errors] == [LeaseLost]
    assert contexts[0].cancelled
    assert (report.succeeded, report.stale) == (0, 0)
    assert (await bench.view(id)).state is State.cancelled
