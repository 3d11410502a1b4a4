"""Decides what is remembered of a request with an idempotency key, where, and what a second one is answered."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.jobs.ids import id_of
from limpet.core.jobs.view import Control

KIND: Final = "idempotency"  # the kinds of the controls that keep requests begin so; each kind has one record
KEPT_MS: Final = 86_400_000  # as long as a client may try again
SHELVES: Final = 1 << 14  # records, since a store reads a kind as a whole: 100,000 keys are six in each
MOST_KEYS: Final = 256  # of one record
MOST_BYTES: Final = 32 * 1024  # of the answers in one record
ANSWER_BYTES: Final = 16 * 1024  # of one answer; of a longer one only the status is kept


class Request(Struct, frozen=True, omit_defaults=True):
    """A request with a key, as it is stored."""

    key: str  # the hash of caller and key
    body: str  # the hash of method, path and body
    at_ms: int  # when it first came: its new jobs get their ids from this
    run: str  # which try of it this is
    until_ms: int  # when a try that is not answered is taken for dead
    status: int = 0  # 0: not answered yet
    answer: bytes | None = None

    def is_old(self, now_ms: int) -> bool:
        """True when its key is free again."""
        return now_ms - self.at_ms >= KEPT_MS


Shelf = tuple[Request, ...]  # what one record holds, oldest first


def hash_of(*parts: bytes | str) -> str:
    """One hash of several texts, which depends on where each ends."""
    whole = sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        whole.update(len(raw).to_bytes(8, "big") + raw)
    return whole.hexdigest()[:32]


def kind_of(key: str) -> str:
    """The kind of the record that has a key."""
    return kind_at(int(key[:8], 16) % SHELVES)


def kind_at(number: int) -> str:
    """The kind of that record."""
    return f"{KIND}:{number:04x}"


def read_shelf(control: Control) -> Shelf:
    """The requests in a stored record; none when another release wrote it in another way."""
    try:
        return msgspec.json.decode(control.value, type=Shelf)
    except msgspec.MsgspecError:
        return ()


def control_of(kind: str, shelf: Shelf) -> Control:
    """The record that a store keeps. Where answers are too long together, those of the oldest requests go first."""
    size = sum(len(each.answer or b"") for each in shelf)
    kept = []
    for each in shelf:
        is_over = size > MOST_BYTES and bool(each.answer)
        size -= len(each.answer or b"") if is_over else 0
        kept.append(replace(each, answer=None) if is_over else each)
    return Control(kind, "requests", msgspec.json.encode(kept))


def new_job_ids(key: str, at_ms: int, count: int) -> list[bytes]:
    """Ids for the jobs that the request asks for, the same in each try of it: a job is stored once.

    Each a uuid7: the instant at which the request first came, 57 bits of its key, 16 of the place.
    """
    field = int(key[-15:], 16) >> 3 << 16
    return [id_of(at_ms, field + place) for place in range(count)]
