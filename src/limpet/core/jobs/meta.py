"""Decides what a job may carry for middleware and hooks: one small JSON object, beside what Limpet says there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.tasks.codec import canonical, encode, looked_into, too_large

MAX_META_BYTES: Final = 4_096  # it travels with every claim of the job, and with every list

RERUN_OF: Final = "rerun_of"  # the job whose arguments it has

# What Limpet itself writes into a job's meta: its place in a flow, the tick of a schedule, the job it is a rerun of.
OURS: Final = frozenset({"flow", "schedule", "tick", RERUN_OF})


_TRACE: Final = re.compile(r"[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def meta_from(value: object) -> bytes:
    """What `meta=` says, as it is stored; nothing for an empty object.

    >>> meta_from({"request": "r1"})
    b'{"request":"r1"}'
    """
    if value is None:
        return b""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidOption(
            f"meta must be an object with texts as names, got {value!r:.80}", fix='pass meta={"request": "r1"}'
        )
    if taken := OURS.intersection(value):
        name = min(taken)
        raise InvalidOption(
            f"meta holds {name!r}, which Limpet writes itself",
            fix=f"choose another name, such as {'my_' + name!r}; these are taken: {', '.join(sorted(OURS))}",
        )
    if not value:
        return b""
    looked_into(dict(value), "meta", allow_bytes=False)
    raw = canonical(encode(dict(value), "meta"))  # the same bytes for the same object: schedules compare them
    if len(raw) > MAX_META_BYTES:
        raise too_large(len(raw), MAX_META_BYTES, "meta", "keep it elsewhere, and pass an id")
    return raw


def with_meta(ours: bytes, asked: bytes) -> bytes:
    """The meta of a job: what Limpet says, and what was asked for."""
    return ours[:-1] + b"," + asked[1:] if ours and asked else ours or asked


def whole_meta(raw: bytes) -> dict[str, Any]:
    """All of a job's meta; what is no object, as a foreign program may have stored it, counts as nothing."""
    try:
        found = msgspec.json.decode(raw) if raw else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def rerun_of(raw: bytes) -> str | None:
    """The id of the job that this one was made of; None for most."""
    return _text(raw, RERUN_OF)


def schedule_of(raw: bytes) -> str | None:
    """The schedule that asked for the job; None for most."""
    return _text(raw, "schedule")


def trace_of(raw: bytes) -> str | None:
    """The id of the trace that the job belongs to, by the W3C's `traceparent`; None for most.

    >>> trace_of(b'{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}')
    '0af7651916cd43dd8448eb211c80319c'
    """
    found = _TRACE.fullmatch(_text(raw, "traceparent") or "")
    return None if found is None else found["trace"]


def tick_of(raw: bytes) -> datetime | None:
    """The instant of its schedule that the job runs for; None for most."""
    said = _text(raw, "tick")
    return None if said is None else datetime.fromisoformat(said)


def _text(raw: bytes, name: str) -> str | None:
    said = whole_meta(raw).get(name)
    return said if isinstance(said, str) else None


def asked_meta(raw: bytes) -> dict[str, Any]:
    """What was asked for, of a job's meta."""
    return {name: value for name, value in whole_meta(raw).items() if name not in OURS}


def asked_bytes(raw: bytes) -> bytes:
    """The same, as it is stored."""
    found = asked_meta(raw)
    return msgspec.json.encode(found) if found else b""
