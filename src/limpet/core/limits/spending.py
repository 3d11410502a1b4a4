"""Decides what a job has spent: adds up what its handlers say, and keeps the sum with the job for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from limpet.core.errors import UsageError
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.limits.unit import UNITS, amount_of, checked_unit, most_of, public_amount, stored_unit

KIND: Final = "spent"  # of the note
_MOST: Final = 1 << 40  # over all attempts


class Bill(NamedTuple):
    """What an attempt hands in at its end: its costs for the gates, and the sum of all attempts for people."""

    costs: Mapping[str, int]
    note: Note

    @classmethod
    def of(cls, job: Claimed, spent: Mapping[str, int], *, cut_short: bool = False) -> Bill:
        """The bill of an attempt that has spent so much; or, if it was cut short, at least what it had reserved."""
        costs = {stored_unit(unit): min(amount, most_of(unit)) for unit, amount in spent.items()}
        if cut_short:
            costs = {unit: max(amount, job.cost_in(unit)) for unit, amount in costs.items()}
        return cls(costs, spent_note(job, spent))


def spending_from(amounts: Mapping[str, object]) -> dict[str, int]:
    """What a handler or an agent says it has spent, by unit and as it is stored.

    None says nothing: the money is gone, and a provider that left a number out is no reason to pay again.
    """
    return {
        checked_unit(unit, what="spent()"): amount_of(unit, amount, what=f"spent(): {unit}")
        for unit, amount in amounts.items()
        if amount is not None
    }


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Both together."""
    return {unit: one.get(unit, 0) + other.get(unit, 0) for unit in UNITS if unit in one or unit in other}


def spent_of(notes: Iterable[Note]) -> dict[str, int]:
    """What a job has spent over all its attempts, as it noted; a note that cannot be read counts for nothing."""
    for note in notes:
        if note.kind == KIND:
            try:
                found = msgspec.json.decode(note.body, type=dict[str, float])
                return {
                    unit: amount_of(unit, amount, what=unit, most=_MOST)
                    for unit, amount in found.items()
                    if unit in UNITS
                }
            except (msgspec.MsgspecError, UsageError):
                return {}
    return {}


def spent_note(job: Claimed, spent: Mapping[str, int]) -> Note:
    """The note of what a job has spent before and in this attempt, in dollars and whole numbers."""
    return Note(KIND, "", msgspec.json.encode(public_spent(added(spent_of(job.notes), spent))))


def public_spent(spent: Mapping[str, int]) -> dict[str, float]:
    """Amounts as people read them."""
    return {unit: public_amount(unit, amount) for unit, amount in spent.items()}
