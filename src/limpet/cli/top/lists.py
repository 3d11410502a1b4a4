"""Decides what the lists of the screen hold: queues, tasks, causes of dead jobs, workers, jobs; each row has a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from limpet.cli.tasks import count_text, share_text, time_text
from limpet.cli.top.ink import Column, Piece, Style
from limpet.core.text.duration import ago_ms, text_of_ms

if TYPE_CHECKING:
    from limpet.cli.top.picture import Picture
    from limpet.core.records.cause import CauseRecord
    from limpet.core.records.job import JobRecord
    from limpet.core.records.queue import QueueRecord
    from limpet.core.records.task import TaskRecord
    from limpet.core.records.worker import WorkerRecord

LATE_MS: Final = 60_000  # a queue whose oldest job has waited so long is marked
MANY_FAIL: Final = 0.1

_STATES: Final[dict[str, Style]] = {
    "ready": "cold",
    "running": "blue",
    "succeeded": "good",
    "blocked": "warn",
    "dead": "bad",
    "cancelled": "dim",
}


class Key(NamedTuple):
    """What a row is about, in every look."""

    kind: str  # the name of its list
    name: str


class Row(NamedTuple):
    """One line of a list."""

    key: Key
    values: tuple[str | Piece, ...]


class List(NamedTuple):
    """A list with its head."""

    kind: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]


def lists_of(picture: Picture, wanted: Callable[[str], bool]) -> list[List]:
    """The lists of a picture; of their rows those whose names are wanted."""
    now_ms = picture.at_ms
    queues = sorted(picture.queues, key=lambda each: (-each.ready, -each.waiting, each.queue))
    tasks = sorted(picture.tasks, key=lambda each: (-each.last_minute.finished, -_waiting(each), each.task))
    causes = sorted(picture.causes, key=lambda each: each.last_at, reverse=True)
    workers = sorted(picture.workers, key=lambda each: (-each.running, each.session))
    return [
        List("queues", QUEUES, [_queue(each, now_ms) for each in queues if wanted(each.queue)]),
        List("tasks", TASKS, [_task(each) for each in tasks if wanted(each.task)]),
        List(
            "errors",
            ERRORS,
            [_cause(each, now_ms) for each in causes if wanted(f"{each.queue} {each.task} {each.error}")],
        ),
        List("workers", WORKERS, [_worker(each, now_ms) for each in workers if wanted(each.session)]),
    ]


def list_of_jobs(jobs: Sequence[JobRecord], now_ms: int) -> List:
    """The jobs of a query."""
    return List("jobs", JOBS, [_job(each, now_ms) for each in jobs])


QUEUES: Final = (
    Column("queues", right=False),
    Column("ready", 9),
    Column("running", 8),
    Column("later", 7),
    Column("dead", 6),
    Column("oldest", 7),
    Column("state", right=False),
)


def _queue(queue: QueueRecord, now_ms: int) -> Row:
    late = queue.oldest_ready_at is not None and ago_ms(queue.oldest_ready_at, now_ms) > LATE_MS
    values = (
        queue.queue,
        _count(queue.ready, "cold"),
        _count(queue.running, "blue"),
        _count(queue.scheduled + queue.blocked),
        _count(queue.dead, "bad"),
        Piece(_ago(queue.oldest_ready_at, now_ms), "warn" if late else ""),
        _state(queue),
    )
    return Row(Key("queues", queue.queue), values)


def _state(queue: QueueRecord) -> Piece:
    if queue.draining:
        return Piece("draining", "warn")
    if queue.paused is not None:
        why = queue.paused.reason or f"by {queue.paused.by}"
        return Piece(f"paused: {why}", "warn")
    return Piece(f"at most {queue.concurrency:,} at once" if queue.concurrency else "", "dim")


TASKS: Final = (
    Column("tasks", right=False),
    Column("waiting", 8),
    Column("running", 8),
    Column("done/min", 9),
    Column("failed", 7),
    Column("run p50", 8),
    Column("p95", 7),
    Column("wait p95", 9),
)


def _task(task: TaskRecord) -> Row:
    minute = task.last_minute
    share = minute.failed_share
    values = (
        task.task,
        _count(_waiting(task), "cold"),
        _count(task.states.get("running", 0), "blue"),
        count_text(minute.finished),
        Piece(share_text(share), "" if not share else "bad" if share >= MANY_FAIL else "warn"),
        time_text(minute.run_p50_s),
        time_text(minute.run_p95_s),
        time_text(minute.wait_p95_s),
    )
    return Row(Key("tasks", task.task), values)


def _waiting(task: TaskRecord) -> int:
    return sum(task.states.get(state, 0) for state in ("blocked", "scheduled", "ready"))


ERRORS: Final = (
    Column("errors", right=False),
    Column("", 18, right=False),
    Column("dead", 7),
    Column("last", 8),
)


def _cause(cause: CauseRecord, now_ms: int) -> Row:
    values = (
        ": ".join(filter(None, (cause.error, cause.message))) or "no error",
        Piece(cause.task, "dim"),
        _count(cause.count, "bad"),
        _ago(cause.last_at, now_ms),
    )
    return Row(Key("errors", cause.cause), values)


WORKERS: Final = (
    Column("workers", right=False),
    Column("running", 9),
    Column("of", 6),
    Column("memory", 9),
    Column("beat", 7),
    Column("queues", right=False),
)


def _worker(worker: WorkerRecord, now_ms: int) -> Row:
    info = worker.info if isinstance(worker.info, dict) else {}
    places, memory_bytes = info.get("concurrency"), info.get("memory_bytes")
    queues = "any" if worker.queues is None else ", ".join(worker.queues)
    trouble = worker.loop or (f"{worker.stuck} stuck" if worker.stuck else "")
    values = (
        worker.session,
        _count(worker.running, "blue"),
        f"{places:,}" if isinstance(places, int) else "",
        f"{memory_bytes / 1_048_576:,.0f} MB" if isinstance(memory_bytes, int) else "",
        _ago(worker.beat_at, now_ms),
        Piece(trouble, "bad") if trouble else Piece(queues, "dim"),
    )
    return Row(Key("workers", worker.session), values)


JOBS: Final = (
    Column("jobs", 14, right=False),
    Column("state", 10, right=False),
    Column("task", 18, right=False),
    Column("attempt", 8),
    Column("age", 7),
    Column("error", right=False),
)


def _job(job: JobRecord, now_ms: int) -> Row:
    values = (
        f"…{job.id[-12:]}",  # commands take the end of an id
        Piece(job.state.value, _STATES.get(job.state.value, "")),
        job.task,
        f"{job.attempt}/{job.attempts}",
        _ago(job.enqueued_at, now_ms),
        job.failure or "",
    )
    return Row(Key("jobs", job.id), values)


def _count(number: int, style: Style = "") -> Piece:
    return Piece(f"{number:,}", style if number else "dim")


def _ago(instant: datetime | None, now_ms: int) -> str:
    if instant is None:
        return ""
    passed_ms = ago_ms(instant, now_ms) // 1000 * 1000
    return text_of_ms(passed_ms) if passed_ms else "now"
