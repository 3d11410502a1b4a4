"""Values beside the JSON Schema that tasks publish."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from limpet.core.tasks.schema import fault_in, names_of
from limpet.core.tasks.task import TaskSpec


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Model(pydantic.BaseModel):
    size: Annotated[int, pydantic.Field(gt=3)]
    inner: Model | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: Annotated[str, msgspec.Meta(min_length=2, max_length=4, pattern="^[a-z]+$")]


@dataclass
class Pair:
    both: tuple[int, str]


Many = Annotated[int, msgspec.Meta(gt=3)]


async def choice(size: Many | None = None) -> None: ...
async def plain(to: str, count: int = 1, copy: list[str] | None = None) -> None: ...
async def rich(colour: Colour, model: Model, pet: Cat | Dog, pair: Pair, mode: Literal["fast", "slow"]) -> None: ...
async def formats(at: datetime.date, key: uuid.UUID, price: decimal.Decimal, ratio: float = 0.5) -> None: ...
async def open_ended(first: int, *rest: int, **more: float) -> None: ...


KEY = "01a1ed0b-260a-73db-8aa9-f99dab8ea600"
RICH: dict[str, Any] = {
    "colour": "red",
    "model": {"size": 4, "inner": {"size": 5}},
    "pet": {"type": "Dog", "name": "rex"},
    "pair": {"both": [1, "x"]},
    "mode": "fast",
}


@pytest.mark.parametrize(
    ("fn", "value", "fault"),
    [
        (plain, {"to": "a"}, None),
        (plain, {"to": "a", "count": 2, "copy": ["b"]}, None),
        (plain, {"to": "a", "copy": None}, None),
        (plain, {"count": 2}, "to is missing"),
        (plain, {"to": 5}, "to is 5, not text"),
        (plain, {"to": "a", "count": True}, "count is true, not a whole number"),
        (plain, {"to": "a", "count": 2.5}, "count is 2.5, not a whole number"),
        (plain, {"to": "a", "copy": "b"}, 'copy is "b", not a list or null'),
        (plain, {"to": "a", "cuont": 2}, "cuont is not known; did you mean 'count'?"),
        (plain, [], "the value is [], not an object"),
        (choice, {"size": 4}, None),
        (choice, {"size": 3}, "size is 3, not more than 3"),
        (choice, {"size": "x"}, 'size is "x", not a whole number or null'),
        (rich, RICH, None),
        (rich, RICH | {"colour": "green"}, 'colour is "green", not one of "blue", "red"'),
        (rich, RICH | {"model": {"size": 3}}, "model.size is 3, not more than 3"),
        (rich, RICH | {"model": {"size": 4, "inner": {"size": "x"}}}, 'model.inner.size is "x", not a whole number'),
        (rich, RICH | {"pet": {"type": "Dog", "name": "r"}}, "pet."),
        (rich, RICH | {"pair": {"both": [1]}}, "pair.both is [1], and takes 2 items or more"),
        (rich, RICH | {"pair": {"both": [1, 2]}}, "pair.both[1] is 2, not text"),
        (rich, RICH | {"mode": "idle"}, 'mode is "idle", not one of "fast", "slow"'),
        (formats, {"at": "2026-02-28", "key": KEY, "price": "1.50", "ratio": 1}, None),
        (formats, {"at": "2026-02-30", "key": KEY, "price": "1"}, 'at is "2026-02-30", not a date'),
        (formats, {"at": "2026-02-28", "key": "me", "price": "1"}, 'key is "me", not a uuid'),
        (open_ended, {"first": 1, "*": [2, 3], "any": 0.5}, None),
        (open_ended, {"first": 1, "*": [2, "x"]}, '*[1] is "x", not a whole number'),
    ],
)
def test_what_does_not_fit_is_named(fn: Any, value: Any, fault: str | None) -> None:
    found = fault_in(value, TaskSpec.declare(fn).signature.schema())
    assert found == fault or (fault is not None and fault.endswith(".") and str(found).startswith(fault))


def test_what_stands_for_a_value_fits_everywhere() -> None:
    schema = TaskSpec.declare(plain).signature.schema()
    assert fault_in({"to": {"$job": 0}}, schema, open_at=lambda value: value == {"$job": 0}) is None


def test_of_names_alone_values_do_not_count_but_for_some() -> None:
    schema = TaskSpec.declare(plain).signature.schema()
    assert fault_in({"to": 5, "count": "x"}, names_of(schema)) is None
    assert fault_in({"to": 5, "count": "x"}, names_of(schema, but=["count"])) == 'count is "x", not a whole number'
    assert fault_in({"cuont": 5, "to": 5}, names_of(schema)) == "cuont is not known; did you mean 'count'?"
    assert fault_in({}, names_of(schema)) == "to is missing"


def test_keywords_of_others_are_ignored() -> None:
    assert fault_in("x", {"type": "string", "format": "phone", "pattern": "(?<bad", "novelty": 3}) is None
