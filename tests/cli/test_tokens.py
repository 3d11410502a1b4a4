"""The commands about tokens: the text alone on standard output, once; list and revoke."""

from __future__ import annotations

from limpet.core.access.token import id_in
from limpet.stores.base import Store
from tests.cli.conftest import Cli


async def nothing(store: Store) -> None:
    await store.open()


def test_the_text_of_a_new_token_is_all_of_standard_output(cli: Cli) -> None:
    cli.seed(nothing)
    ran = cli("tokens", "create", "--role", "worker", "--name", "ci", "--queue", "mail", "--expires", "90d")
    text = ran.out.removesuffix("\n")
    assert id_in(text) is not None
    assert "token ci: worker, mail, expires " in ran.err
    assert text not in ran.err
    made = cli("tokens", "create", "--role", "viewer", "--json").json
    assert (made["role"], made["queues"], made["state"], made["expires_at"]) == ("viewer", None, "active", None)
    assert made["token"].startswith(made["prefix"])
    assert made["name"] == f"viewer-{made['prefix'].removeprefix('limpet_').lower()}"


def test_tokens_are_listed_and_revoked(cli: Cli) -> None:
    cli.seed(nothing)
    text = cli("tokens", "create", "--role", "worker", "--name", "ci", "--queue", "mail", "--queue", "post").out.strip()
    head, line = cli("tokens").out.splitlines()
    assert head.split()[:5] == ["TOKEN", "BEGINS", "ROLE", "QUEUES", "STATE"]
    assert line.split() == ["ci", text[:15], "worker", "mail,", "post", "active"]
    (listed,) = cli("tokens", "--json").json["tokens"]
    assert (listed["name"], listed["queues"], "token" in listed) == ("ci", ["mail", "post"], False)
    assert cli("tokens", "revoke", text[:15], "--reason", "was in a log").out == "token ci: revoked\n"
    assert cli("tokens", "--json").json["tokens"] == []
    assert cli("tokens", "list", "--all", "--json").json["tokens"][0]["state"] == "revoked"
    assert cli("tokens", "revoke", "ci", "--json").json["state"] == "revoked"
    assert "did you mean 'ci'" in cli("tokens", "revoke", "cii", code=3).err
    assert "admin" in cli("tokens", "create", code=2).err


def test_a_token_is_of_the_namespace_in_which_it_was_made(cli: Cli) -> None:
    cli.seed(nothing)
    cli("tokens", "create", "--role", "admin", "--namespace", "shop")
    assert cli("tokens", "--json").json["tokens"] == []
    assert len(cli("tokens", "--json", "--namespace", "shop").json["tokens"]) == 1
