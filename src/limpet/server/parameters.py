"""Names the values that many routes take, with their bounds and what documents say of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from limpet.core.text.storable import REASON_CHARS

MOST_SEQ: Final = (1 << 53) - 1  # what JavaScript still counts exactly
MOST_IDS: Final = 10_000

Q = Annotated[str, Meta(description="Which jobs, in the query language: state:dead queue:mail task:send_*")]
Cursor = Annotated[str, Meta(description="The cursor of the page before.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="The most that is answered.")]
Lines = Annotated[int, Meta(ge=1, le=10_000, description="The most lines that are answered.")]
Since = Annotated[str, Meta(description="Since then: 1h (ago), or 2026-11-19T08:00Z.")]
Begins = Annotated[str, Meta(description="Only those whose keys begin so.")]
QueueName = Annotated[str, Meta(description="Only of this queue.")]
Reason = Annotated[str, Meta(max_length=REASON_CHARS, description="Why; kept in the audit log.")]
Time = Annotated[float | str, Meta(description="Seconds, or text such as 5m.")]
Instant = Annotated[datetime, Meta(tz=True)]
DryRun = Annotated[bool, Meta(description="Say what would happen, and change nothing.")]


def one_of(*names: str) -> dict[str, Any]:
    """What a JSON Schema says of fields of which one must be given."""
    return {"oneOf": [{"required": [name]} for name in names]}


def refuse_unless_one(asked: Struct, *names: str, least: int = 1) -> None:
    """The same for a request: msgspec makes a refusal of the error."""
    said = [name for name in names if getattr(asked, name) is not UNSET]
    if not least <= len(said) <= 1:
        raise ValueError(f"give {' or '.join(names)}, one of them")


class Page(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a list."""

    limit: Limit = 50
    cursor: Cursor | None = None


class Search(Page, frozen=True, forbid_unknown_fields=True):
    """Which jobs, and which page of them."""

    q: Q = ""


class Newest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines of a log."""

    limit: Lines = 100
    since: Since | None = None


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done."""

    reason: Reason = ""


class Act(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be done, and why."""

    dry_run: DryRun = False


class Bulk(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs are meant: those that match a query now, or those of these ids; one of the two."""

    RULES: ClassVar = one_of("q", "ids")

    q: Q | UnsetType = UNSET
    ids: Annotated[list[str], Meta(min_length=1, max_length=MOST_IDS)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        refuse_unless_one(self, "q", "ids")

    @property
    def which(self) -> str | list[str]:
        """What `Operator` takes."""
        return self.q or self.ids or ""


def given(asked: Struct, *left_out: str) -> dict[str, Any]:
    """The fields that a request has set, by name."""
    return {
        name: value
        for name in asked.__struct_fields__
        if name not in left_out and (value := getattr(asked, name)) not in (None, UNSET)
    }
