"""Decides the form of a public record: plain values in Python, one JSON object everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from limpet.core.gate import FOREVER_MS
from limpet.core.text.duration import instant_ms, iso

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Record(Struct, frozen=True, kw_only=True):
    """What is known of something at one instant: ids as text, instants as aware `datetime`, durations in seconds.

    A list of records is a tuple. Lists and dicts hold what users stored, or facts by name.
    """

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it, for `json.dumps`: instants are RFC 3339 in UTC, to the millisecond."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """`dict(record)` is `record.to_dict()`: what FastAPI asks for where a view declares no type."""
        return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """How pydantic reads, writes and describes it."""
        from limpet.core.records.pydantic_schema import schema_of

        return schema_of(cls, handler)


def plain(value: Any) -> Any:
    """A value of a record as JSON has it."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, datetime):
        return iso(instant_ms(value))
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return msgspec.to_builtins(value)


def moment(at_ms: int) -> datetime:
    """The public form of an instant."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def instant(at_ms: int | None) -> datetime | None:
    """The public form of an instant; None when there is none or it never comes."""
    return None if at_ms is None or at_ms >= FOREVER_MS else moment(at_ms)


def seconds(ms: int | None) -> float | None:
    """The public form of a duration."""
    return None if ms is None else ms / 1000


def content(raw: bytes | None) -> Any:
    """The value of stored JSON; bytes that are none are shown as text, so that a person can look at them."""
    if raw is None or raw == b"":
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return {"undecodable": raw.decode("utf-8", "replace")}
