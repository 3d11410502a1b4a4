"""Makes, lists and revokes the tokens of the HTTP API; a store keeps their hashes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.core.access.role import checked_role
from limpet.core.access.token import (
    ID_CHARS,
    KIND,
    LETTERS,
    SECRET_CHARS,
    USED,
    Token,
    Use,
    hash_of,
    read_token,
    read_use,
    text_of,
)
from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control
from limpet.core.records.token import NewToken, TokenRecord
from limpet.core.tasks.naming import checked_name, checked_names, did_you_mean
from limpet.core.text.duration import Duration, to_ms
from limpet.ops.bulk import Decision
from limpet.ops.names import UnknownName
from limpet.stores.base import Store

SEEN_MS: Final = 60_000  # a token's last use is written so often at most


class Tokens:
    """The tokens of one namespace: each opens that namespace and no other."""

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._clock = clock

    def now_ms(self) -> int:
        """The instant by which tokens are made and expire."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    async def create(
        self,
        role: str,
        *,
        name: str | None = None,
        queues: Iterable[str] | None = None,
        expires: Duration | None = None,
        reason: str = "",
    ) -> NewToken:
        """Make a token of that role, for these queues or all; its text is in the answer and nowhere else.

        >>> made = await operator.tokens.create("worker", queues=["mail"], expires="90d")  # doctest: +SKIP
        """
        now_ms, id = self.now_ms(), _drawn(ID_CHARS)
        text = text_of(id, _drawn(SECRET_CHARS))
        token = Token(
            name=f"{checked_role(role)}-{id.lower()}" if name is None else checked_name(name, what="name"),
            id=id,
            hash=hash_of(text),
            role=checked_role(role),
            made_at_ms=now_ms,
            made_by=self.actor,
            queues=_scope(queues),
            expires_at_ms=None if expires is None else now_ms + _lifetime_ms(expires),
        )
        record = TokenRecord.of(token, now_ms)
        decision = Decision("token.create", self.actor, reason, _facts(record))
        await self._keep(token, now_ms)
        await self.store.append([decision.entry(now_ms)])
        return NewToken(**{field: getattr(record, field) for field in TokenRecord.__struct_fields__}, token=text)

    async def list(self, *, revoked: bool = False) -> tuple[TokenRecord, ...]:
        """Every token by name, expired ones too; revoked ones when asked."""
        used, now_ms = await last_uses(self.store), self.now_ms()
        found = (TokenRecord.of(token, now_ms, used.get(token.id)) for token in await stored_tokens(self.store))
        return tuple(token for token in found if revoked or token.state != "revoked")

    async def revoke(self, which: str, *, reason: str = "") -> TokenRecord:
        """The token of that name or prefix opens nothing any more; servers notice within a second."""
        now_ms = self.now_ms()
        while True:
            token, version = await self._named(which)
            if token.revoked_at_ms is not None:
                return TokenRecord.of(token, now_ms)
            gone = replace(token, revoked_at_ms=now_ms)
            if await self.store.put_control(gone.control(), expect=version) is not None:
                break
        record = TokenRecord.of(gone, now_ms, (await last_uses(self.store)).get(token.id))
        decision = Decision("token.revoke", self.actor, reason, _facts(record))
        await self.store.append([decision.entry(now_ms)])
        return record

    async def _keep(self, token: Token, now_ms: int) -> None:
        """Store it under its name, unless an active token has that name; one that opens nothing makes room."""
        while True:
            control = await self._control(token.name)
            known = None if control is None else read_token(control)
            if control is not None and (known is None or known.state(now_ms) == "active"):
                raise InvalidOption(
                    f"there is a token {token.name!r}",
                    fix=f"choose another name, or first: limpet tokens revoke {token.name}",
                )
            expect = 0 if control is None else control.version
            if await self.store.put_control(token.control(), expect=expect) is not None:
                return

    async def _named(self, which: str) -> tuple[Token, int]:
        """The token that has this name or prefix, and the version of its record."""
        names = []
        for control in await self.store.controls(KIND):
            token = read_token(control)
            if token is not None and which in (token.name, token.prefix):
                return token, control.version
            names.append(control.name)
        raise UnknownName(f"there is no token {which!r:.80}", fix=did_you_mean(which, names))

    async def _control(self, name: str) -> Control | None:
        return next((control for control in await self.store.controls(KIND) if control.name == name), None)


async def stored_tokens(store: Store) -> tuple[Token, ...]:
    """Every token that is stored, by name; revoked and expired ones too."""
    found = [read_token(control) for control in await store.controls(KIND)]
    return tuple(token for token in found if token is not None)


async def last_uses(store: Store) -> dict[str, int]:
    """When tokens were last used, by id."""
    found = [read_use(control) for control in await store.controls(USED)]
    return {use.id: use.at_ms for use in found if use is not None}


async def note_use(store: Store, token: Token, at_ms: int) -> None:
    """Write that a token was used: in a record of its own, so that a revocation is never written over."""
    await store.put_control(Control(USED, token.name, msgspec.json.encode(Use(token.id, at_ms))))


def _scope(queues: Iterable[str] | None) -> tuple[str, ...] | None:
    if queues is None:
        return None
    names = checked_names(queues, what="queues")
    if not names:
        raise InvalidOption("queues names no queue", fix="leave it out: the token is for every queue then")
    for name in names:
        if "*" in name:
            raise InvalidOption(f"queues={name!r} is a pattern", fix="name each queue of the token")
    return names


def _lifetime_ms(expires: Duration) -> int:
    ms = to_ms(expires, what="expires")
    if ms <= 0:
        raise InvalidOption(f"expires={expires!r} is no time at all", fix="such as 90d; left out: it does not expire")
    return ms


def _facts(record: TokenRecord) -> dict[str, object]:
    """What the audit log keeps of a token."""
    shape: Mapping[str, object] = record.to_dict()
    return {name: shape[name] for name in ("name", "prefix", "role", "queues", "expires_at")}


def _drawn(chars: int) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(chars))
