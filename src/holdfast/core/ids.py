"""Makes job ids: uuid7, 16 raw bytes inside, text at the public edge, growing within one process."""

from __future__ import annotations

import os
from uuid import UUID

from holdfast.core.errors import InvalidOption


class IdMaker:
    """Makes uuid7 values that never run backwards in one process and never repeat across a fork.

    The clock is passed in, so that a client may correct it by the offset measured to its engine:
    within a lane the order is (due, id), and ids made on two machines should interleave by time.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._last = 0

    def make(self, now_ms: int) -> bytes:
        """One new id, larger than any this maker has made."""
        pid = os.getpid()
        if pid != self._pid:
            # A forked child shares our memory: without fresh randomness it would repeat our ids.
            self._pid, self._last = pid, 0
        # 48 bits of time, then a 74-bit field we treat as one growing integer seeded at random.
        noise = int.from_bytes(os.urandom(13), "big")
        # A random step keeps two threads that meet here in the same instant from making the same id.
        self._last = value = max(self._last + 1 + (noise & _STEP), (now_ms << 74) | noise >> 32)
        high, low = value >> 62, value & ((1 << 62) - 1)
        stamp, rand_a = high >> 12, high & 0xFFF
        return ((stamp << 80) | (0x7000 | rand_a) << 64 | (0b10 << 62) | low).to_bytes(16, "big")

    def make_many(self, count: int, now_ms: int) -> list[bytes]:
        """`count` new ids in growing order."""
        return [self.make(now_ms) for _ in range(count)]


# Ids made within one millisecond grow by a step instead of fresh randomness, so they keep their order.
_STEP = (1 << 32) - 1


def id_text(raw: bytes) -> str:
    """The public form of an id."""
    h = raw.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def id_bytes(text: str) -> bytes:
    """The stored form of an id; anything that is not a UUID is refused by name."""
    try:
        return UUID(text).bytes
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidOption(
            f"{text!r} is not a job id", fix="pass the UUID text that enqueue returned as job.id"
        ) from error
