"""Decides what is remembered of a schedule's ticks: the last few, fired or dropped, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from limpet.core.jobs.view import Control

KEPT: Final = 50  # ticks; older ones are seen as jobs, for as long as those are stored
_NAME: Final = "recent"

Why = Literal["", "overlap", "unique", "missed", "expired"]


class Tick(Struct, frozen=True, omit_defaults=True):
    """What became of one tick, or of several in a row that were dropped for the same reason."""

    at_ms: int  # of the newest
    decided_at_ms: int
    why: Why = ""  # it was dropped; "" = it fired
    count: int = 1
    beside: str = ""  # the job that was in its way

    @property
    def fired(self) -> bool:
        return not self.why


def kind_of(name: str) -> str:
    """The kind of the record that keeps the ticks of a schedule: one each, so that one can be read without the rest."""
    return f"ticks:{name}"


def remembered(name: str, ticks: Sequence[Tick]) -> Control:
    """The record of the newest ticks, in order, each once."""
    newest = {tick.at_ms: tick for tick in sorted(ticks, key=lambda tick: tick.at_ms)}
    return Control(kind_of(name), _NAME, msgspec.json.encode(list(newest.values())[-KEPT:]))


def read_ticks(controls: Sequence[Control]) -> list[Tick]:
    """The ticks in such a record; none when another release wrote it in another way."""
    for control in controls:
        if control.name == _NAME:
            try:
                return msgspec.json.decode(control.value, type=list[Tick])
            except msgspec.MsgspecError:
                return []
    return []
