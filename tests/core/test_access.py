"""Roles are a table; a token is stored as its hash, and compared with what is sent."""

from __future__ import annotations

import pytest

from limpet.core.access.role import INCLUDED, ROLES, checked_role
from limpet.core.access.token import LETTERS, Token, fits, hash_of, id_in, read_token, text_of
from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control

TEXT = text_of("3fA81kQz", LETTERS[:43])
TOKEN = Token("ci", "3fA81kQz", hash_of(TEXT), "worker", made_at_ms=1_000, made_by="ada", expires_at_ms=5_000)


def test_every_pair_of_roles_is_decided() -> None:
    allowed = {role: [asked for asked in ROLES if asked in INCLUDED[role]] for role in ROLES}
    assert allowed == {
        "viewer": ["viewer"],
        "producer": ["viewer", "producer"],
        "worker": ["viewer", "worker"],
        "operator": ["viewer", "producer", "worker", "operator"],
        "admin": ["viewer", "producer", "worker", "operator", "admin"],
    }


def test_a_role_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'operator'"):
        checked_role("operater")


def test_a_token_is_stored_without_its_text() -> None:
    control = TOKEN.control()
    assert LETTERS[:43].encode() not in control.value
    assert read_token(control) == TOKEN
    assert read_token(Control("token", "ci", b"?")) is None
    assert TOKEN.prefix == "limpet_3fA81kQz"


def test_the_text_of_a_token_fits_it_and_no_other_does() -> None:
    assert id_in(TEXT) == "3fA81kQz"
    assert fits(TOKEN, TEXT)
    assert not fits(TOKEN, TEXT[:-1] + "a")
    assert not fits(None, TEXT)
    for wrong in ("", "limpet_3fA81kQz", TEXT[:-1], f"{TEXT}a", f"{TEXT}\n", TEXT.replace("_", "-"), f"x{TEXT}"):
        assert id_in(wrong) is None


@pytest.mark.parametrize(("at_ms", "state"), [(4_999, "active"), (5_000, "expired")])
def test_a_token_ends_at_the_instant_that_it_names(at_ms: int, state: str) -> None:
    assert TOKEN.state(at_ms) == state
