"""`limpet doctor --repair`: shows first, asks, changes, and leaves a line for each difference."""

from __future__ import annotations

from contextlib import closing

from limpet.core.jobs.ids import id_text
from limpet.stores.base import Store
from limpet.stores.sqlite.library import library
from tests.cli.conftest import Cli
from tests.ops.making import job, put


def damaged(cli: Cli) -> str:
    """A parent whose row is gone, and a child that waits for it; the parent's id."""

    async def seed(store: Store) -> str:
        (parent,) = await put(store, job())
        await put(store, job(after=(parent,)))
        return id_text(parent)

    parent = cli.seed(seed)
    with closing(library.connect(str(cli.path))) as conn, conn:
        conn.execute("DELETE FROM limpet_job WHERE id = ?", (bytes.fromhex(parent.replace("-", "")),))
    return str(parent)


def test_a_dry_run_shows_and_changes_nothing(cli: Cli) -> None:
    parent = damaged(cli)
    first = cli("doctor", "--repair", "--dry-run", "--json").json
    assert first == cli("doctor", "--repair", "--dry-run", "--json").json
    assert first["dry_run"] is True
    assert {"kind": "vanished", "jobs": [parent]}.items() <= first["differences"][0].items()
    assert f"({parent})" in cli("doctor", "--repair", "--dry-run").err
    assert cli("audit", "--json").json == {"entries": []}


def test_off_a_terminal_it_needs_a_yes(cli: Cli) -> None:
    damaged(cli)
    ran = cli("doctor", "--repair", code=2)
    assert "--yes" in ran.err
    assert cli("doctor", "--repair", "--dry-run", "--json").json["differences"]


def test_it_repairs_and_says_why_in_the_audit_log(cli: Cli) -> None:
    parent = damaged(cli)
    assert "repaired" in cli("doctor", "--repair", "--yes", "--reason", "a row was deleted").out
    assert "nothing to repair" in cli("doctor", "--repair", "--yes").out
    entries = cli("audit", "--json").json["entries"]
    assert entries[0]["kind"] == "store.repair"
    assert {entry["reason"] for entry in entries[:3]} == {"a row was deleted"}
    (vanished,) = [entry for entry in entries if entry["kind"] == "repair.vanished"]
    assert vanished["job"] == parent
    stats = cli("stats", "--json").json
    assert (stats["ever"]["cancelled"], stats["ever"]["discarded"]) == (1, 1)


def test_its_options_belong_to_it(cli: Cli) -> None:
    damaged(cli)
    assert "--repair" in cli("doctor", "--yes", code=2).err
