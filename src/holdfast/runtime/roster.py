"""Publishes which jobs a child process has started, in shared memory that survives its kill -9."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

_ENTRY: Final = 32  # one flag byte, 16 bytes of id, 8 of token, padding: an entry never crosses a cache line
_TURN: Final = 0  # where it says when the child's loop last turned, in monotonic ms
_BEAT: Final = 8  # where it says when the child last reached the store

Where = Literal["inside", "isolated"]
_FLAGS: Final[dict[Where, int]] = {"inside": 1, "isolated": 2}


class Started(Struct, frozen=True):
    """A job that a child had started and not ended."""

    id: bytes
    token: int
    where: Where


class Roster:
    """A file of fixed size, mapped by child and supervisor: slot → job. The child writes, the supervisor reads."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.slots = slots
        self._map = mmap.mmap(descriptor, self.size(slots))

    @staticmethod
    def size(slots: int) -> int:
        """Bytes needed for so many slots."""
        return _ENTRY * (slots + 1)

    def start(self, slot: int, id: bytes, token: int, where: Where) -> None:
        """Say that a job starts; the flag goes last, so that a torn entry reads as free."""
        if slot >= self.slots:
            return
        at = _ENTRY * (slot + 1)
        self._map[at + 1 : at + 25] = id + token.to_bytes(8, "big")
        self._map[at] = _FLAGS[where]

    def end(self, slot: int) -> None:
        """Say that the job of this slot has ended."""
        if slot < self.slots:
            self._map[_ENTRY * (slot + 1)] = 0

    def turn(self) -> None:
        """Say that the child's loop still turns."""
        self._stamp(_TURN)

    def beat(self) -> None:
        """Say that the child's own heartbeat has just reached the store."""
        self._stamp(_BEAT)

    def silent_ms(self) -> int:
        """How long ago the child's loop last turned."""
        return self._since_ms(_TURN)

    def beaten_ms(self) -> int:
        """How long ago the child's own heartbeat last reached the store."""
        return self._since_ms(_BEAT)

    def _stamp(self, at: int) -> None:
        self._map[at : at + 8] = (time.monotonic_ns() // 1_000_000).to_bytes(8, "big")

    def _since_ms(self, at: int) -> int:
        return time.monotonic_ns() // 1_000_000 - int.from_bytes(self._map[at : at + 8], "big")

    def started(self) -> Iterator[Started]:
        """What runs now, or ran when the child died."""
        for slot in range(self.slots):
            at = _ENTRY * (slot + 1)
            flag = self._map[at]
            if flag:
                body = self._map[at + 1 : at + 25]
                where: Where = "inside" if flag == _FLAGS["inside"] else "isolated"
                yield Started(body[:16], int.from_bytes(body[16:], "big"), where)

    def close(self) -> None:
        self._map.close()
