"""The messages between a worker and the isolated processes that run jobs for it, framed by their length."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.endings.transition import Transition
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.limits.pushback import Lesson
from limpet.runtime.attempt import Cause
from limpet.runtime.settings import AppRef

END_S: Final = 2.0  # a cell without a job that has not ended by then is killed: something that a job left goes on
_HEAD: Final = 4  # bytes of length before each message


class Hello(Struct, frozen=True, tag=True):
    """worker → cell: which app to load, from where, and which store it is bound to."""

    app: AppRef
    path: list[str]


class Run(Struct, frozen=True, tag=True):
    """worker → cell: run this job."""

    job: Claimed


class Stop(Struct, frozen=True, tag=True):
    """worker → cell: end the running job."""

    cause: Cause
    reason: str


class Saved(Struct, frozen=True, tag=True):
    """worker → cell: whether a note could be written under the job's token."""

    number: int
    kept: bool


class Up(Struct, frozen=True, tag=True):
    """cell → worker: the app is loaded and its resources are open."""


class Broken(Struct, frozen=True, tag=True):
    """cell → worker: the app cannot be loaded here."""

    error: str


class Noted(Struct, frozen=True, tag=True):
    """cell → worker: progress or a log line, for the next beat."""

    note: Note


class Spent(Struct, frozen=True, tag=True):
    """cell → worker: what the attempt under this token has cost so far, by unit."""

    token: int
    spent: dict[str, int]


class Learned(Struct, frozen=True, tag=True):
    """cell → worker: what an answer said of the limits behind this gate."""

    gate: str
    lesson: Lesson


class Save(Struct, frozen=True, tag=True):
    """cell → worker: write this note now and say whether it was kept."""

    number: int
    note: Note


class Done(Struct, frozen=True, tag=True):
    """cell → worker: what the attempt came to."""

    transition: Transition | None
    memory_bytes: int


ToCell = Hello | Run | Stop | Saved
ToWorker = Up | Broken | Noted | Spent | Learned | Save | Done

to_cell: Final = msgspec.msgpack.Decoder(ToCell)
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: Struct) -> bytes:
    """A message as it goes over the pipe."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's body; None when the other side is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD), "big")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
