"""Names the values that many routes take, with their bounds and what documents say of them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.text.storable import REASON_CHARS

MOST_SEQ: Final = (1 << 53) - 1  # what JavaScript still counts exactly

Q = Annotated[str, Meta(description="Which jobs, in the query language: state:dead queue:mail task:send_*")]
Cursor = Annotated[str, Meta(description="The cursor of the page before.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="The most that is answered.")]
Lines = Annotated[int, Meta(ge=1, le=10_000, description="The most lines that are answered.")]
Since = Annotated[str, Meta(description="Since then: 1h (ago), or 2026-11-19T08:00Z.")]
Begins = Annotated[str, Meta(description="Only those whose keys begin so.")]
QueueName = Annotated[str, Meta(description="Only of this queue.")]
Reason = Annotated[str, Meta(max_length=REASON_CHARS, description="Why; kept in the audit log.")]
DryRun = Annotated[bool, Meta(description="Say what would happen, and change nothing.")]


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
