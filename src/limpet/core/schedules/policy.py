"""Decides what a schedule may ask about overlapping, missed, late and spread-out runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration, to_ms

MOST_CAUGHT_UP: Final = 1_000  # ticks that one plan fires late: they are enqueued in one write
_CATCH_UP: Final = {"skip": 0, "last": 1, "all": MOST_CAUGHT_UP}


class Overlap(StrEnum):
    """What a tick does while a run of its schedule is not finished."""

    skip = "skip"  # this tick has no run
    queue_one = "queue_one"  # one run may wait behind the one that runs; with one waiting, this tick has none
    allow = "allow"  # runs side by side
    cancel_running = "cancel_running"  # the older run is cancelled in favour of this one


class TickPolicy(Struct, frozen=True, omit_defaults=True):
    """What becomes of ticks: the stored form of overlap=, catch_up=, jitter= and expires_in=."""

    overlap: Overlap = Overlap.skip
    catch_up: int = 1  # how many missed ticks fire late, the newest: 0 = skip, 1 = last
    jitter_ms: int = 0
    expires_ms: int | None = None

    @classmethod
    def of(
        cls,
        overlap: Overlap | str = Overlap.skip,
        catch_up: str | int = "last",
        jitter: Duration = 0,
        expires_in: Duration | None = None,
    ) -> TickPolicy:
        """A policy from what people write; whatever makes no sense is refused by name.

        >>> TickPolicy.of(catch_up=5, jitter="30s").jitter_ms
        30000
        """
        expires_ms = None if expires_in is None else to_ms(expires_in, what="expires_in")
        if expires_ms == 0:
            raise InvalidOption(f"expires_in={expires_in!r} leaves no time at all", fix="use None to switch it off")
        return cls(overlap_of(overlap), catch_up_of(catch_up), to_ms(jitter, what="jitter"), expires_ms)


def overlap_of(value: Overlap | str) -> Overlap:
    """One of the four answers to an overlap; "queue one" and "queue-one" are read too."""
    said = str(value).strip().replace("-", "_").replace(" ", "_")
    if isinstance(value, str) and said in Overlap.__members__:
        return Overlap(said)
    raise InvalidOption(f"overlap={value!r:.80} is unknown", fix=did_you_mean(said, Overlap.__members__))


def catch_up_of(value: str | int) -> int:
    """How many missed ticks fire late: "skip" (none), "last" (one), a number, or "all" (up to a thousand)."""
    if isinstance(value, str):
        if value in _CATCH_UP:
            return _CATCH_UP[value]
        if value.isascii() and value.isdigit() and len(value) < 8:
            value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_CAUGHT_UP:
        return value
    raise InvalidOption(
        f"catch_up={value!r:.80} is unknown",
        fix=f'use "skip", "last", "all", or how many missed ticks fire late, {MOST_CAUGHT_UP:,} at most',
    )


def catch_up_text(catch_up: int) -> str:
    """The same for people: "skip", "last" or "all up to 5"."""
    return {0: "skip", 1: "last"}.get(catch_up, f"all up to {catch_up}")
