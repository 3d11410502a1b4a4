"""The messages between a supervisor and its children, over a socket whose end tells each of the other's death."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.lease import Serves
from limpet.core.transition import Transition
from limpet.core.view import Entry
from limpet.runtime.settings import WorkerSettings

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
    log: str = "text"
    log_level: str = "INFO"


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


ToChild = Begin | Halt | SessionLost | Look
ToSupervisor = Ready | Leaving | GivenUp | Unwritten | Seen

to_child: Final = msgspec.msgpack.Decoder(ToChild)
to_supervisor: Final = msgspec.msgpack.Decoder(ToSupervisor)
