"""Workers are killed while an alert fires and resolves: a real receiver is told of each once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from limpet.core.alerts.delivery import QUEUE
from limpet.core.alerts.rule import NAMES
from limpet.core.jobs.state import LIVE, State
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.chaos import alert_jobs
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field, WorkerProcess, kill
from tests.servers.receiver import Receiver, receiver
from tests.size import FULL

WORKERS = 2
KILLS = 10 if FULL else 1  # while it fires, and again while it resolves


@pytest.fixture
def pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """What the settings of all workers name: one rule is on, and is looked at often."""
    others = "\n".join(f"{name} = false" for name in NAMES if name != "dead_letters")
    with receiver() as found:
        settings = tmp_path / "limpet.toml"
        settings.write_text(
            f'[alerts]\nevery = "200ms"\n[alerts.rules]\n{others}\n'
            f'dead_letters = {{ clear_after = "500ms" }}\n'
            f'[alerts.webhooks.pager]\nurl = "{found.url}"\ntimeout = "1s"\n'
        )
        monkeypatch.setenv("LIMPET_CONFIG", str(settings))
        yield found


@on_every_engine
@pytest.mark.timeout(240)
async def test_an_alert_fires_once_and_resolves_once_while_workers_are_killed(field: Field, pager: Receiver) -> None:
    workers = [hire(field) for _ in range(WORKERS)]
    (id,) = await field.put("dies", {}, 1, alert_jobs.app)
    await field.until("the job is dead", partial(is_dead, field))
    await murders(field, workers)
    await field.until("it is told that it fires", lambda: "firing" in said(pager))
    await field.store.discard([id])
    await murders(field, workers)
    await field.until("it is told that it has resolved", lambda: "resolved" in said(pager), 120)
    await field.until("every job that tells it has ended", partial(is_quiet, field), 120)
    told = pager.firings()
    assert sorted(set(states).pop() for states in told.values()) == ["firing", "resolved"], told
    assert all(len(set(states)) == 1 for states in told.values()), told
    jobs = [job for job in await Bench(field.store, Clock()).everything() if job.lane.queue == QUEUE]
    assert [job.state for job in jobs] == [State.succeeded] * 2


def said(pager: Receiver) -> set[str]:
    return {state for states in pager.firings().values() for state in states}


async def murders(field: Field, workers: list[WorkerProcess]) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(field.rng.uniform(0, 0.4))
        place = field.rng.randrange(WORKERS)
        for pid in workers[place].tree():
            kill(pid)
        await workers[place].ended()
        workers[place] = hire(field)


async def is_dead(field: Field) -> bool:
    return (await field.store.count()).total(State.dead) == 1


async def is_quiet(field: Field) -> bool:
    counts = await field.store.count()
    return not any(counts.total(state) for state in LIVE)


def hire(field: Field) -> WorkerProcess:
    return field.start(app="tests.chaos.alert_jobs:app")
