"""Decides what of a token is public: whatever is stored of it but its hash."""

from __future__ import annotations

from datetime import datetime

from limpet.core.access.role import Role
from limpet.core.access.token import Token, TokenState
from limpet.core.records.record import Record, instant, moment


class TokenRecord(Record, frozen=True, kw_only=True):
    """A token of the HTTP API: what it opens, and whether it still does."""

    name: str
    prefix: str  # how its text begins
    role: Role
    queues: tuple[str, ...] | None  # None: every queue
    state: TokenState
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None  # to within a minute

    @classmethod
    def of(cls, token: Token, now_ms: int, used_at_ms: int | None = None) -> TokenRecord:
        """The public face of a token."""
        return cls(
            name=token.name,
            prefix=token.prefix,
            role=token.role,
            queues=token.queues,
            state=token.state(now_ms),
            created_at=moment(token.made_at_ms),
            created_by=token.made_by,
            expires_at=instant(token.expires_at_ms),
            revoked_at=instant(token.revoked_at_ms),
            last_used_at=instant(used_at_ms),
        )


class NewToken(TokenRecord, frozen=True, kw_only=True):
    """A token that was just made, with its text, which is told this once."""

    token: str
