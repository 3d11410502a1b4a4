"""Makes job ids: uuid7, 16 raw bytes inside, text at the public edge, growing within one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import ClassVar
from uuid import UUID

from limpet.core.errors import InvalidOption, JobNotFound


class IdMaker:
    """Makes uuid7 values that never run backwards in one process and never repeat across a fork.

    The clock is passed in, so that a client may correct it by the offset measured to its engine:
    within a lane the order is (due, id), and ids made on two machines should interleave by time.
    """

    life: ClassVar[int] = 1  # grows in a forked child: asking the system for its pid would be a fifth of an enqueue

    def __init__(self) -> None:
        self._life = 0
        self._last = 0
        self._noise: Iterator[int] = iter(())  # asked for in one go: a call of the system per id would be half its cost

    def make(self, now_ms: int) -> bytes:
        """One new id, larger than any this maker has made."""
        if self._life != IdMaker.life:
            # A forked child shares our memory: without fresh randomness it would repeat our ids.
            self._life, self._last, self._noise = IdMaker.life, 0, iter(())
        noise = next(self._noise, None)
        if noise is None:
            self._noise = iter(_unpack(os.urandom(_NOISE_BYTES)))
            noise = next(self._noise)
        # 48 bits of time, then a 74-bit field we treat as one growing integer seeded at random.
        # A random step keeps two threads that meet here in the same instant from making the same id.
        self._last = value = max(self._last + 1 + (noise & _STEP), now_ms << 74 | noise << 8)
        return _pack(value >> 74 << 16 | 0x7000 | value >> 62 & 0xFFF, _VARIANT | value & _LOW)

    def make_many(self, count: int, now_ms: int) -> list[bytes]:
        """`count` new ids in growing order."""
        return [self.make(now_ms) for _ in range(count)]


def _forked() -> None:
    IdMaker.life += 1


os.register_at_fork(after_in_child=_forked)

# Ids made within one millisecond grow by a step instead of fresh randomness, so they keep their order.
_STEP = (1 << 32) - 1
_LOW = (1 << 62) - 1
_VARIANT = 0b10 << 62
_NOISE_BYTES = 512
_unpack = Struct(f"{_NOISE_BYTES // 8}Q").unpack
_pack = Struct(">2Q").pack


def id_of(at_ms: int, field: int) -> bytes:
    """The id of that instant and of a number below 2^74: for jobs whose ids follow from something, and never differ."""
    value = at_ms << 74 | field
    return _pack(value >> 74 << 16 | 0x7000 | value >> 62 & 0xFFF, _VARIANT | value & _LOW)


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


def known_id(text: str, no_such: type[JobNotFound] = JobNotFound) -> bytes:
    """The stored form of the id of something that is asked about: text that is no id names nothing that is stored."""
    try:
        return id_bytes(text)
    except InvalidOption as error:
        raise no_such(error.message, fix=error.fix) from None
