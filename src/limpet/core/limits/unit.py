"""Decides what can be counted and how: requests, tokens and money as whole numbers, and back into words for people.

Money is kept in millionths of a dollar, rounded up, and never passes through binary fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from numbers import Real
from operator import index
from typing import Final, SupportsIndex, TypedDict

from msgspec import Struct

from limpet.core.errors import InvalidOption

Amount = int | float | Decimal

PLAIN: Final = "cost"  # what a job costs unless it says of what; stored as ""
MONEY: Final = "usd"
UNITS: Final = (PLAIN, "tokens", "input_tokens", "output_tokens", MONEY)
MICRO: Final = 1_000_000  # parts of a dollar
MAX_COST: Final = 100_000  # of the plain unit: times the slowest rate, in microseconds, this still fits 64 bits
_MOST: Final = {PLAIN: MAX_COST, MONEY: 1_000_000}  # that one job may cost
_MOST_TOKENS: Final = 1_000_000_000


class Amounts(TypedDict, total=False):
    """How much of each unit: what a job will cost, or has spent."""

    cost: int
    tokens: int
    input_tokens: int
    output_tokens: int
    usd: Amount


class Cost(Struct, frozen=True):
    """What a job costs: of the plain unit, and of others as they are stored."""

    plain: int = 1
    units: dict[str, int] = {}

    def of(self, unit: str) -> int:
        """What it costs of a unit, by its public name."""
        return self.plain if unit == PLAIN else self.units.get(unit, 0)

    def replaced(self, amounts: Mapping[str, int]) -> Cost:
        """This cost, but for the units that `amounts` names."""
        others = {unit: amount for unit, amount in amounts.items() if unit != PLAIN}
        return Cost(amounts.get(PLAIN, self.plain), {**self.units, **others})


ONE: Final = Cost()


def stored_unit(unit: str) -> str:
    """How gates and jobs call a unit: the plain one is ""."""
    return "" if unit == PLAIN else unit


def public_unit(unit: str) -> str:
    """How people call a unit that is stored."""
    return unit or PLAIN


def checked_unit(unit: object, *, what: str) -> str:
    """`unit` when it is one that is counted."""
    if isinstance(unit, str) and unit in UNITS:
        return unit
    if unit == "requests":
        raise InvalidOption(
            f"{what} counts {unit!r}", fix=f"each job is one request: use {PLAIN!r}, or the rate itself"
        )
    raise InvalidOption(f"{what} counts {unit!r:.80}", fix=f"units are {', '.join(UNITS)}")


def amount_of(unit: str, value: object, *, what: str, most: int | None = None) -> int:
    """A public amount as it is stored: dollars in millionths, everything else as it is.

    >>> amount_of("usd", 0.1, what="spent"), amount_of("usd", "0.0000001", what="spent")
    (100000, 1)
    """
    exact = _exact(value)
    most = _MOST.get(unit, _MOST_TOKENS) if most is None else most
    scale = MICRO if unit == MONEY else 1
    if exact is None or not 0 <= exact <= most:
        number = "a number of dollars" if unit == MONEY else "an integer"
        raise InvalidOption(
            f"{what} must be an amount of {unit}, got {value!r:.80}", fix=f"use {number} from 0 to {most:,}"
        )
    if unit != MONEY and exact != exact.to_integral_value():
        raise InvalidOption(
            f"{what} must be a whole amount of {unit}, got {value!r}", fix="round it up: only dollars have fractions"
        )
    return int((exact * scale).to_integral_value(ROUND_CEILING))


def most_of(unit: str) -> int:
    """The most that one job may cost of a unit, as it is stored: engines count that, at any rate, in 64 bits."""
    return _MOST.get(unit, _MOST_TOKENS) * (MICRO if unit == MONEY else 1)


def _exact(value: object) -> Decimal | None:
    """The number that a person wrote: 0.1 is a tenth, not the nearest binary fraction."""
    whole = _whole(value)
    if whole is not None:
        return Decimal(whole)
    if isinstance(value, bool) or not isinstance(value, Real | Decimal | str):
        return None
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _whole(value: object) -> int | None:
    """An integer, also of numpy and others; a truth is none."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def amounts_from(value: object, *, what: str = "cost") -> dict[str, int]:
    """What `cost=` says, by unit and as it is stored: a number is of the plain unit.

    >>> amounts_from({"input_tokens": 900, "usd": 0.01})
    {'input_tokens': 900, 'usd': 10000}
    """
    if not isinstance(value, Mapping):
        return {PLAIN: _plain(value, what)}
    return {
        checked_unit(unit, what=what): amount_of(unit, amount, what=f"{what}[{unit!r}]")
        for unit, amount in value.items()
    }


def cost_from(value: object) -> Cost:
    """The cost that `cost=` declares: one of the plain unit, unless it says otherwise."""
    return ONE.replaced(amounts_from(value))


def _plain(value: object, what: str) -> int:
    whole = _whole(value)
    if whole is not None and 0 <= whole <= MAX_COST:
        return whole
    example = 'or amounts by unit such as {"tokens": 900, "usd": 0.01}'
    raise InvalidOption(f"{what} must be an integer ≥ 0, got {value!r:.80}", fix=f"use 0 to {MAX_COST:,}, {example}")


def public_amount(unit: str, stored: int) -> int | float:
    """A stored amount as JSON shows it: dollars, or a whole number."""
    return stored / MICRO if unit == MONEY else stored


def amount_text(unit: str, stored: int) -> str:
    """A stored amount in words.

    >>> amount_text("usd", 400_000), amount_text("usd", 50_000_000), amount_text("tokens", 1834)
    ('$0.40', '$50', '1,834 tokens')
    """
    if unit == MONEY:
        sign, dollars = "-" if stored < 0 else "", Decimal(abs(stored)) / MICRO
        places = 0 if dollars == dollars.to_integral_value() else 2
        exponent = dollars.normalize().as_tuple().exponent
        places = max(places, -exponent if isinstance(exponent, int) else 0)
        return f"{sign}${dollars:,.{places}f}"
    words = public_unit(unit).replace("_", " ")
    return f"{words} {stored:,}" if words == PLAIN else f"{stored:,} {words}"


def amount_typed(unit: str, stored: int) -> str:
    """A stored amount as a command line takes it."""
    return f"{(Decimal(stored) / MICRO).normalize():f}" if unit == MONEY else str(stored)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Stored amounts by public unit, in one line."""
    return ", ".join(amount_text(unit, stored) for unit, stored in amounts.items())
