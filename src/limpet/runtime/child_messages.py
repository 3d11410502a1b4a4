"""The messages between processes: a supervisor and its children, a worker and its isolated children.

They go over a socket whose end tells each side of the other's death.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.endings.transition import Transition
from limpet.core.jobs.lease import Claimed, Note, Serves
from limpet.core.jobs.minute import Tally
from limpet.core.jobs.view import Entry
from limpet.core.limits.pushback import Lesson
from limpet.runtime.attempt import Cause
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.settings import AppRef, WorkerSettings

# How a child ends, and what its supervisor makes of it.
STOPPED: Final = 0  # as asked
FAILED: Final = 1  # a part died, or the app cannot be loaded
CUT_OFF: Final = 5  # the engine stayed away too long
RECYCLED: Final = 75  # enough jobs or memory: start me again


class Begin(Struct, frozen=True, tag=True):
    """supervisor → child: who you are and what to run."""

    app_ref: str
    path: list[str]
    settings: WorkerSettings
    session: str
    lines: int  # of the roster
    url: str | None = None  # a flag that wins over the app's own
    namespace: str | None = None
    log: LogSettings = LogSettings()
    metrics: bool = False  # send reports


class Halt(Struct, frozen=True, tag=True):
    """supervisor → child: stop claiming and end; `force` does not wait for running jobs.

    A child that has to go because something is wrong with it gets no order: what it cuts off is lost.
    """

    force: bool = False
    ordered: bool = True


class SessionLost(Struct, frozen=True, tag=True):
    """supervisor → child: your session had expired when I beat for you."""


class Look(Struct, frozen=True, tag=True):
    """supervisor → child: say what has happened since this event; you have a connection to the store, I have none."""

    after: int
    most: int


class Ready(Struct, frozen=True, tag=True):
    """child → supervisor: I claim jobs, of this store, for this session."""

    url: str
    namespace: str
    serves: Serves
    info: bytes
    heard: int  # the last event that was logged before


class Leaving(Struct, frozen=True, tag=True):
    """child → supervisor: I am closing my session; do not beat for me any more."""


class GivenUp(Struct, frozen=True, tag=True):
    """child → supervisor: a job's handler runs on past its hard timeout; settle this for it when I am gone."""

    transition: Transition


class Unwritten(Struct, frozen=True, tag=True):
    """child → supervisor: these jobs have ended and I could not say so to the store: do it for me."""

    transitions: list[Transition]
    spent: dict[bytes, dict[str, int]]


class Seen(Struct, frozen=True, tag=True):
    """child → supervisor: this has happened since that event; None: I could not ask."""

    after: int
    entries: list[Entry] | None


class Counted(Struct, frozen=True, tag=True):
    """child → supervisor: what I have counted since my last report, and how I am now. Numbered from 1."""

    number: int
    lines: list[tuple[str, str, Tally]]  # queue, task, how attempts ended
    counts: dict[str, int]
    blocks: dict[str, int]  # how often the loop was blocked, by task
    gauges: list[float]  # in the order of metrics_book.GAUGES
    exemplars: list[tuple[str, str, str, float, float]]  # queue, task, trace, seconds it ran and had waited


ToChild = Begin | Halt | SessionLost | Look
ToSupervisor = Ready | Leaving | GivenUp | Unwritten | Seen | Counted

to_child: Final = msgspec.msgpack.Decoder(ToChild)
to_supervisor: Final = msgspec.msgpack.Decoder(ToSupervisor)

# -- a worker and its isolated children

END_S: Final = 2.0  # then an isolated child without a job is killed: something that a job left behind still runs
_HEAD: Final = 4  # bytes of length before each message


class Hello(Struct, frozen=True, tag=True):
    """worker → isolated child: which app to load, from where, which store it is bound to, and how it logs."""

    app: AppRef
    path: list[str]
    log: LogSettings


class Run(Struct, frozen=True, tag=True):
    """worker → isolated child: run this job."""

    job: Claimed


class Stop(Struct, frozen=True, tag=True):
    """worker → isolated child: end the running job."""

    cause: Cause
    reason: str


class Saved(Struct, frozen=True, tag=True):
    """worker → isolated child: whether a note could be written under the job's token."""

    number: int
    kept: bool


class Up(Struct, frozen=True, tag=True):
    """isolated child → worker: the app is loaded and its resources are open."""


class Broken(Struct, frozen=True, tag=True):
    """isolated child → worker: the app cannot be loaded here."""

    error: str


class Noted(Struct, frozen=True, tag=True):
    """isolated child → worker: progress or a log line of the attempt under this token, for a beat."""

    token: int
    note: Note


class Spent(Struct, frozen=True, tag=True):
    """isolated child → worker: what the attempt under this token has cost so far, by unit."""

    token: int
    spent: dict[str, int]


class Learned(Struct, frozen=True, tag=True):
    """isolated child → worker: what an answer said of the limits behind this gate."""

    gate: str
    lesson: Lesson


class Save(Struct, frozen=True, tag=True):
    """isolated child → worker: write this note now and say whether it was kept."""

    number: int
    note: Note


class Done(Struct, frozen=True, tag=True):
    """isolated child → worker: what the attempt came to."""

    transition: Transition | None
    memory_bytes: int


ToIsolatedChild = Hello | Run | Stop | Saved
ToWorker = Up | Broken | Noted | Spent | Learned | Save | Done

to_isolated_child: Final = msgspec.msgpack.Decoder(ToIsolatedChild)
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: Struct) -> bytes:
    """A message as it goes over the pipe."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's body; None when the other process is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD), "big")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
