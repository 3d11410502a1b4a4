"""Remembers in a job's meta which finished job it was made of."""

from __future__ import annotations

from typing import Any, Final

import msgspec

RERUN_OF: Final = "rerun_of"  # in a job's meta: the job whose arguments it has


def rerun_of(meta: bytes) -> str | None:
    """The id of the job that this one was made of; None for most."""
    said = read_meta(meta).get(RERUN_OF)
    return said if isinstance(said, str) else None


def read_meta(meta: bytes) -> dict[str, Any]:
    """A job's meta as names and values; empty for what cannot be read."""
    try:
        return msgspec.json.decode(meta, type=dict[str, Any]) if meta else {}
    except msgspec.MsgspecError:
        return {}
