"""Publishes which jobs a child process has started, in shared memory that survives its kill -9."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from time import clock_gettime_ns, monotonic_ns  # by name: a handler may replace what the module holds
from typing import Final, Literal

from msgspec import Struct

# One flag byte, 16 bytes of id, 8 of token, padding, 4 of the group: a line never crosses a cache line.
_LINE: Final = 32
_GROUP: Final = 28
_TURN: Final = 0  # where it says when the child's loop last turned, in monotonic ms
_BEAT: Final = 8  # where it says when the last beat was sent with which the child reached the store
_FULL: Final = 16  # where it says that a job was started for which there was no line
_WORKED: Final = 17  # where it says that it has ever started a job
_SAID: Final = 18  # where it says how it ends: one more than its exit code
_THREAD: Final = 24  # where it says when another thread of its had its turn
_END: Final = 32  # where it says when it began to end
_BEAT_FOR: Final = 40  # where the supervisor says when it sent the last beat for the child that was answered
_HEAD: Final = 64  # two lines: all of the above
_KEPT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # also runs while the machine is suspended

Where = Literal["inside", "isolated"]
_FLAGS: Final[dict[Where, int]] = {"inside": 1, "isolated": 2}


def kept_ms() -> int:
    """The time by which leases are counted here: alike in all processes of a machine, and never set."""
    return clock_gettime_ns(_KEPT) // 1_000_000


class Started(Struct, frozen=True):
    """A job that a child had started and not settled."""

    id: bytes
    token: int
    where: Where
    group: int = 0  # of the processes that run it; 0: none of its own, or none yet


class Roster:
    """A file of fixed size, mapped by child and supervisor: a line per job. The child writes, the supervisor reads.

    The head is for both: each says when it last kept the session.

    A line stays until the job is settled, not only until its handler returns: between the two its effects are
    out in the world, and a job that was "never started" would be handed back as if they were not.
    """

    def __init__(self, descriptor: int, lines: int) -> None:
        self._map = mmap.mmap(descriptor, self.size(lines))
        self._free = list(range(_HEAD + _LINE * (lines - 1), _HEAD - 1, -_LINE))
        self._taken: dict[tuple[bytes, int], int] = {}

    @staticmethod
    def size(lines: int) -> int:
        """Bytes needed for this number of lines."""
        return _HEAD + _LINE * lines

    def start(self, id: bytes, token: int, where: Where) -> None:
        """Say that a job starts; the flag goes last, so that a torn line reads as free."""
        self._map[_WORKED] = 1
        if not self._free:
            self._map[_FULL] = 1
            return
        at = self._taken[id, token] = self._free.pop()
        self._map[at + 1 : at + _LINE] = id + token.to_bytes(8, "big") + bytes(_LINE - 25)
        self._map[at] = _FLAGS[where]

    def runs_in(self, id: bytes, token: int, group: int) -> None:
        """Say which group of processes a job is given to; 0 when it runs inside after all."""
        at = self._taken.get((id, token))
        if at is None:
            return
        self._map[at + _GROUP : at + _LINE] = group.to_bytes(_LINE - _GROUP, "big")
        self._map[at] = _FLAGS["isolated" if group else "inside"]

    def end(self, id: bytes, token: int) -> None:
        """Say that a job is settled, or is not ours any more. Jobs that never started have no line."""
        at = self._taken.pop((id, token), None)
        if at is not None:
            self._map[at] = 0
            self._free.append(at)

    @property
    def complete(self) -> bool:
        """False when more was started than there are lines: then a job without a line may have been started too."""
        return not self._map[_FULL]

    @property
    def worked(self) -> bool:
        """True when the child has started a job, whatever became of it."""
        return bool(self._map[_WORKED])

    def say(self, code: int) -> None:
        """Say with which code the child is about to end: any handler could end its process with the same."""
        self._map[_SAID] = code + 1

    @property
    def said(self) -> int | None:
        """The code with which the child meant to end; None when it did not mean to."""
        return self._map[_SAID] - 1 if self._map[_SAID] else None

    def turn(self) -> None:
        """Say that the child's loop still turns."""
        self._stamp(_TURN)

    def beat(self, sent_ms: int) -> None:
        """Say that the heartbeat which the child sent at that moment has reached the store."""
        self._write(_BEAT, sent_ms)

    def beat_for(self, sent_ms: int) -> None:
        """Say the same of one that the supervisor sent for the child."""
        self._write(_BEAT_FOR, sent_ms)

    def beaten_for_at_ms(self) -> int:
        """When the supervisor sent the last one that was answered; 0: never."""
        return self._read(_BEAT_FOR)

    def thread(self) -> None:
        """Say that threads of the child have their turns, whatever its loop does."""
        self._stamp(_THREAD)

    def end_begins(self) -> None:
        """Say that the child has begun to end."""
        self._stamp(_END)

    def ending_ms(self) -> int:
        """How long ago the child began to end; 0 when it has not."""
        return self._since_ms(_END) if any(self._map[_END : _END + 8]) else 0

    def still_ms(self) -> int:
        """How long ago a thread of the child last had its turn."""
        return self._since_ms(_THREAD)

    def silent_ms(self) -> int:
        """How long ago the child's loop last turned."""
        return self._since_ms(_TURN)

    def beaten_ms(self) -> int:
        """How long ago the child sent the heartbeat that last reached the store."""
        return kept_ms() - self._read(_BEAT)

    def _stamp(self, at: int) -> None:
        self._write(at, _now_ms())

    def _since_ms(self, at: int) -> int:
        return _now_ms() - self._read(at)

    def _write(self, at: int, ms: int) -> None:
        self._map[at : at + 8] = ms.to_bytes(8, "big")

    def _read(self, at: int) -> int:
        return int.from_bytes(self._map[at : at + 8], "big")

    def started(self) -> Iterator[Started]:
        """What was started and is not settled, now or when the child died."""
        for at in range(_HEAD, len(self._map), _LINE):
            flag = self._map[at]
            if flag:
                body = self._map[at + 1 : at + 25]
                where: Where = "inside" if flag == _FLAGS["inside"] else "isolated"
                group = int.from_bytes(self._map[at + _GROUP : at + _LINE], "big")
                yield Started(body[:16], int.from_bytes(body[16:], "big"), where, group)

    def close(self) -> None:
        self._map.close()


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
