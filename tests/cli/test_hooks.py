"""The commands about hooks: list and remove."""

from __future__ import annotations

from limpet.core.endings.hook import QUEUE, Hook
from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import State
from limpet.stores.base import Store
from tests.cli.conftest import Cli


async def publish(store: Store) -> None:
    await store.put_control(Hook(Lane(QUEUE, "alert"), states=(State.dead,), queues=("mail",)).control())


def test_hooks_are_listed_and_removed(cli: Cli) -> None:
    cli.seed(publish)
    head, line = cli("hooks").out.splitlines()
    assert head.split() == ["HOOK", "STATES", "TASKS", "WAITING", "DEAD", "WORKERS"]
    assert line.split() == ["alert", "dead", "queue:mail", "0", "0", "0"]
    (hook,) = cli("hooks", "--json").json["hooks"]
    assert (hook["name"], hook["states"], hook["queues"], hook["workers"]) == ("alert", ["dead"], ["mail"], 0)
    assert "unserved_hook" in cli("doctor", "--json", code=None).out
    assert "did you mean 'alert'" in cli("hooks", "remove", "alrt", code=3).err
    assert cli("hooks", "remove", "alert", "--reason", "gone").out == "hook alert: removed; jobs that it has stay\n"
    assert cli("hooks", "--json").json["hooks"] == []
    cli.seed(publish)
    removed = {"key": "alert", "changed": ["alert"], "state": "removed", "notes": ["jobs that it has stay"]}
    assert cli("hooks", "remove", "alert", "--json").json == removed
    assert "unserved_hook" not in cli("doctor", "--json", code=None).out
