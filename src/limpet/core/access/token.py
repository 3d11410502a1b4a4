"""Decides what of a token is stored: never its text, from which only a hash is kept."""

from __future__ import annotations

import hashlib
import re
from hmac import compare_digest
from typing import Final, Literal

import msgspec
from msgspec import Struct

from limpet.core.access.role import Role
from limpet.core.jobs.view import Control

KIND: Final = "token"  # the kind of the controls that keep tokens, each under the name of its token
USED: Final = "token.used"  # and of those that keep when each was last used: to note that never changes a token

LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_CHARS: Final = 8
SECRET_CHARS: Final = 43  # 256 bits: no one guesses it, and a hash without salt or cost is enough

_TEXT: Final = re.compile(rf"limpet_([0-9A-Za-z]{{{ID_CHARS}}})_[0-9A-Za-z]{{{SECRET_CHARS}}}")
_NO_HASH: Final = "0" * 64

TokenState = Literal["active", "expired", "revoked"]


class Token(Struct, frozen=True, omit_defaults=True):
    """A token as it is stored."""

    name: str
    id: str
    hash: str  # SHA-256 of the text, in hexadecimal digits
    role: Role
    made_at_ms: int
    made_by: str
    queues: tuple[str, ...] | None = None  # None: every queue
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None

    @property
    def prefix(self) -> str:
        """The part of the text that may be shown."""
        return prefix_of(self.id)

    def state(self, now_ms: int) -> TokenState:
        """Whether it opens anything at that instant."""
        if self.revoked_at_ms is not None:
            return "revoked"
        return "expired" if self.expires_at_ms is not None and now_ms >= self.expires_at_ms else "active"

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self))


class Use(Struct, frozen=True):
    """When a token was last used, as it is stored: by id, since a name may be given again."""

    id: str
    at_ms: int


def prefix_of(id: str) -> str:
    """The part of a token's text that may be shown."""
    return f"limpet_{id}"


def text_of(id: str, secret: str) -> str:
    """The whole text, which is shown once."""
    return f"{prefix_of(id)}_{secret}"


def id_in(text: str) -> str | None:
    """The id in what may be a token's text; None when it cannot be one."""
    match = _TEXT.fullmatch(text)
    return None if match is None else match[1]


def hash_of(text: str) -> str:
    """What is stored of the text."""
    return hashlib.sha256(text.encode()).hexdigest()


def fits(token: Token | None, text: str) -> bool:
    """Whether the text is that token's, in a time that says nothing about it; without a token it takes as long."""
    return compare_digest(hash_of(text), _NO_HASH if token is None else token.hash)


def read_token(control: Control) -> Token | None:
    """The token in a stored record; None when another release wrote one that cannot be read here."""
    try:
        return msgspec.json.decode(control.value, type=Token)
    except msgspec.MsgspecError:
        return None


def read_use(control: Control) -> Use | None:
    """When the token of that name was last used, in a stored record."""
    try:
        return msgspec.json.decode(control.value, type=Use)
    except msgspec.MsgspecError:
        return None
