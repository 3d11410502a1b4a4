"""Tokens on every engine: the text is told once, a hash is stored, and who made or revoked one is in the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.access.token import KIND, fits, id_in
from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control
from limpet.ops import Operator
from limpet.ops.names import UnknownName
from limpet.ops.tokens import last_uses, note_use, stored_tokens
from limpet.records import NewToken
from limpet.stores.base import Store
from limpet_contract.harness import Harness
from tests.contract.harnesses import HARNESSES, SHARED

DAY_MS = 86_400_000


@pytest.fixture(params=SHARED)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    harness = HARNESSES[request.param](tmp_path)
    yield harness
    await harness.close()


@pytest.fixture
async def store(harness: Harness) -> Store:
    return await harness.open()


@pytest.fixture
def operator(store: Store) -> Operator:
    return Operator(store, "ada")


async def opens(store: Store, made: NewToken) -> bool:
    """Whether what is stored fits the text that was told."""
    found = [token for token in await stored_tokens(store) if token.id == id_in(made.token)]
    return len(found) == 1 and fits(found[0], made.token)


async def test_a_token_is_told_once_and_stored_as_a_hash(operator: Operator, store: Store) -> None:
    made = await operator.tokens.create("worker", name="ci", queues=["mail", "mail"], expires="90d", reason="builds")
    assert made.token.startswith(made.prefix + "_")
    assert await opens(store, made)
    (listed,) = await operator.tokens.list()
    assert (listed.name, listed.role, listed.queues, listed.state) == ("ci", "worker", ("mail",), "active")
    assert listed.expires_at is not None
    assert (listed.expires_at - listed.created_at).days == 90
    secret = made.token.removeprefix(made.prefix + "_")
    stored = [control.value for control in await store.controls(KIND)]
    (entry,) = await operator.audit()
    assert (entry.kind, entry.actor, entry.reason, entry.data["role"]) == ("token.create", "ada", "builds", "worker")
    assert secret not in repr((listed, stored, entry))


async def test_a_token_of_another_namespace_is_unknown_here(operator: Operator, harness: Harness) -> None:
    made = await operator.tokens.create("admin")
    other = await harness.open()
    assert not await opens(other, made)
    assert await Operator(other, "ada").tokens.list() == ()


async def test_a_revoked_token_is_listed_when_asked_and_its_name_is_free(operator: Operator, store: Store) -> None:
    first = await operator.tokens.create("viewer", name="board")
    gone = await operator.tokens.revoke("board", reason="was in a log")
    assert (gone.state, gone.revoked_at is not None) == ("revoked", True)
    assert await operator.tokens.list() == ()
    assert await operator.tokens.list(revoked=True) == (gone,)
    assert await operator.tokens.revoke(first.prefix) == gone
    assert [entry.kind for entry in await operator.audit()] == ["token.create", "token.revoke"]
    second = await operator.tokens.create("viewer", name="board")
    assert not await opens(store, first)
    assert await opens(store, second)


async def test_a_name_is_of_one_active_token_even_if_two_ask_at_once(operator: Operator, store: Store) -> None:
    asked = [operator.tokens.create("viewer", name="board") for _ in range(5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    made = [answer for answer in answers if isinstance(answer, NewToken)]
    assert len(made) == 1
    assert all(isinstance(answer, InvalidOption) for answer in answers if answer not in made)
    assert await opens(store, made[0])


async def test_an_expired_token_makes_room_for_one_of_its_name(operator: Operator, store: Store) -> None:
    first = await operator.tokens.create("viewer", name="board", expires=1)
    later = Operator(store, "ada", clock=lambda: operator.now_ms() + DAY_MS)
    (listed,) = await later.tokens.list()
    assert (listed.state, listed.prefix) == ("expired", first.prefix)
    assert (await later.tokens.create("viewer", name="board")).state == "active"
    assert not await opens(store, first)


async def test_its_last_use_is_of_the_token_and_not_of_its_name(operator: Operator, store: Store) -> None:
    await operator.tokens.create("viewer", name="board")
    (token,) = await stored_tokens(store)
    await note_use(store, token, 5 * DAY_MS)
    assert await last_uses(store) == {token.id: 5 * DAY_MS}
    (listed,) = await operator.tokens.list()
    assert listed.to_dict()["last_used_at"] == "1970-01-06T00:00:00.000Z"
    revoked = await operator.tokens.revoke("board")
    await note_use(store, token, 6 * DAY_MS)
    assert revoked.last_used_at is not None
    assert (await operator.tokens.list(revoked=True))[0].state == "revoked", "a late note of its use opens it not again"
    await operator.tokens.create("viewer", name="board")
    assert (await operator.tokens.list())[0].last_used_at is None


async def test_what_makes_no_token_is_refused_by_name(operator: Operator, store: Store) -> None:
    for words, asked in (
        ("did you mean 'viewer'", operator.tokens.create("viewr")),
        ("names no queue", operator.tokens.create("viewer", queues=[])),
        ("is a pattern", operator.tokens.create("viewer", queues=["mail.*"])),
        ("is not a list", operator.tokens.create("viewer", queues="mail")),
        ("is not a name", operator.tokens.create("viewer", name="two words")),
        ("no time at all", operator.tokens.create("viewer", expires=0)),
    ):
        with pytest.raises(InvalidOption, match=words):
            await asked
    with pytest.raises(UnknownName, match="there is no token 'board'"):
        await operator.tokens.revoke("board")
    await store.put_control(Control(KIND, "later", b'{"of another release":1}'))
    assert await operator.tokens.list() == ()
    with pytest.raises(InvalidOption, match="there is a token 'later'"):
        await operator.tokens.create("viewer", name="later")
