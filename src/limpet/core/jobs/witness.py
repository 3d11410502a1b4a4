"""Decides whether the store that answers is the one that answered before: it may be another, or the same set back."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from limpet.core.text.duration import iso

FIELD: Final = "store"  # what a worker saw of its store, in what it says about itself
TOKENS_PER_MS: Final = 2_048  # a token is at least the time at which it was given out


class Sight(Struct, frozen=True):
    """What was seen of a store: its own name, and the newest token that it had given out."""

    store: str = ""
    token: int = 0


class Change(Struct, frozen=True):
    """The store is not what it was: another one answers, or the same without what happened last."""

    kind: Literal["other", "older"]
    before: Sight
    now: Sight

    @property
    def text(self) -> str:
        """What happened."""
        if self.kind == "other":
            names = f"its name was {self.before.store} and is {self.now.store}"
            return f"another store answers here than before: it was emptied, created again or replaced ({names})"
        seen, left = (iso(each.token // TOKENS_PER_MS) for each in (self.before, self.now))
        return f"the store was set back: it had given out a lease at {seen}, and knows of none after {left}"

    @property
    def fix(self) -> str:
        """What to do about it."""
        if self.kind == "other":
            return "jobs of the one before are not in it: restore a backup, or enqueue them again under their ids"
        return "jobs that were enqueued since are gone: enqueue them again under their ids; finished ones may run again"


class Report(Struct, frozen=True):
    """What a worker saw of its store since it started."""

    sight: Sight
    changes: tuple[Change, ...] = ()


def change(before: Sight, now: Sight) -> Change | None:
    """What became of a store between two looks; None when it is the same and went on, or was not seen before."""
    if not before.store or not now.store:
        return None
    if before.store != now.store:
        return Change("other", before, now)
    return Change("older", before, now) if now.token < before.token else None
