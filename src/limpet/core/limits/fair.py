"""Decides how a batch is shared between waiting members: round robin with weights, no floats."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Turn(Struct, frozen=True):
    """One participant in a ring: `left` of its `weight` jobs remain in the turn it is in."""

    member: int
    left: int
    weight: int


def share(count: int, ring: Sequence[Turn]) -> list[int]:
    """How many of `count` jobs each participant gets, in ring order (least recently served first).

    The first pass gives what is left of interrupted turns, later passes whole turns, so no member is
    served twice before every member was served once.
    """
    given = [0] * len(ring)
    for index, turn in enumerate(ring):
        given[index] = min(count, turn.left)
        count -= given[index]
    total = sum(turn.weight for turn in ring)
    if count <= 0 or not total:
        return given
    rounds, count = divmod(count, total)
    for index, turn in enumerate(ring):
        extra = min(count, turn.weight)
        count -= extra
        given[index] += rounds * turn.weight + extra
    return given


class Place(Struct, frozen=True):
    """Where a participant stands after service: what is left of its turn, and whether it goes to the end."""

    member: int
    left: int
    moves: bool


def places(ring: Sequence[Turn], served: Sequence[int]) -> list[Place]:
    """Who stands where after `served`, in the order in which those that move take their new turns.

    A turn cut short keeps its place and its remainder. Of the members whose turn is over, the one with fewer
    turns in the batch comes first: it is the one whose turn is next, perhaps with a part of it taken.
    """
    kept: list[Place] = []
    moved: list[tuple[int, Place]] = []
    for turn, count in zip(ring, served, strict=True):
        if count < turn.left:
            if count:
                kept.append(Place(turn.member, turn.left - count, moves=False))
            continue
        turns, over = divmod(count - turn.left, turn.weight)
        moved.append((turns, Place(turn.member, turn.weight - over, moves=True)))
    moved.sort(key=lambda served: served[0])
    return kept + [place for _, place in moved]
