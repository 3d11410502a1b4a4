"""`limpet rerun`: finished jobs run again as new ones."""

from __future__ import annotations

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import job, put


@pytest.fixture
def cancelled(cli: Cli) -> str:
    async def make(store: Store) -> str:
        (id,) = await put(store, job(args={"to": "a"}, unique=Unique("welcome")))
        await store.cancel([id], "by mistake")
        return id_text(id)

    return cli.seed(make)


def test_a_job_runs_again_and_says_where_it_came_from(cli: Cli, cancelled: str) -> None:
    said = cli("rerun", cancelled, "--reason", "cancelled by mistake")
    assert said.out == "rerun: 1 rerun\n"
    new = said.err.split()[-1]
    assert f"{cancelled}: runs again as job {new}" in said.err
    assert f"rerun of     {cancelled}" in cli("job", new).out
    assert cli("job", new, "--json").json["rerun_of"] == cancelled
    audit = cli("audit").out
    assert "cancelled by mistake" in audit
    assert f"as {new}" in audit


def test_a_unique_key_that_is_held_is_a_conflict_that_names_the_holder(cli: Cli, cancelled: str) -> None:
    new = cli("rerun", cancelled, "--json").json["made"][cancelled]
    refused = cli("rerun", cancelled, code=4)
    assert f"job {new} holds its unique key" in refused.err
    assert "note: --no-unique runs a job without its unique key, beside the job that holds it" in refused.err
    assert "--no-unique" in cli("rerun", cancelled, "--json", code=4).json["notes"][0]
    waits = cli("rerun", new, code=1)
    assert waits.out == "rerun: 1 not finished\n"
    assert f"note: job {new} is ready, and runs by itself; only finished jobs are run again" in waits.err
    assert cli("rerun", cancelled, "--no-unique", "--json").json["done"] == 1


def test_a_query_is_shown_first_and_needs_a_yes(cli: Cli, cancelled: str) -> None:
    dry = cli("rerun", "task:send", "--dry-run")
    assert dry.out == "would rerun 1 job\n"
    assert cancelled in dry.err
    assert "needs a yes" in cli("rerun", "task:send", code=2).err
    assert cli("rerun", "task:send", "--yes", "--json").json["answers"] == {"rerun": 1}
    assert "rerun acts on jobs that are cancelled, succeeded" in cli("rerun", "state:ready", "--yes", code=2).err
