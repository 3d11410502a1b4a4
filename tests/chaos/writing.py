"""A worker of examples/agent.py that is killed at the n-th of its steps: each call of the store, before and after.

As a program it is a nursery of such workers.
"""

from __future__ import annotations

import asyncio
import os
import runpy
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from limpet.core.tasks.task import TaskSpec
from limpet.runtime import Parts, Worker, WorkerPlan, current_job
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.sqlite import SqliteStore
from tests.chaos.nursery import nurse
from tests.chaos.paying import Sqlite, Steps, Watched

AGENT = Path(__file__).parents[2] / "examples" / "agent.py"


PATIENT: Final = "patient"


class Life(Struct, frozen=True):
    """One worker's life: where its jobs and its provider are, and before which step it dies (0: none).

    With `only`, steps are counted whose name ends like that.
    """

    url: str
    namespace: str
    provider: str
    dies_at: int = 0
    only: str = ""


class Chosen(Steps):
    """Counts the steps whose name ends as asked."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.dies_at)
        self._only = life.only

    def take(self, what: str) -> None:
        if what.endswith(self._only):
            super().take(what)


def agent() -> dict[str, Any]:
    """What examples/agent.py defines."""
    return runpy.run_path(str(AGENT))


def tasks() -> dict[str, TaskSpec]:
    """The example's task, and one that is suspended between two calls of the model: it sleeps, and asks a person."""
    defined = agent()
    ask = defined["ask"]

    async def patient() -> str:
        job = current_job()
        outline: str = await job.step("outline", ask, "outline bees")
        await job.sleep(0)
        decision = await job.approval("Go on?", timeout="1d")
        review: str = await job.step("review", ask, f"{outline}, approved by {decision.by}")
        return review

    return {**defined["app"].parts().tasks, PATIENT: TaskSpec.declare(patient, name=PATIENT, retry=None)}


async def live(life: Life, steps: Steps) -> None:
    """Work until nothing is left, or until the last step."""
    os.environ["PROVIDER_URL"] = life.provider
    plain = open_store(life.url, life.namespace)
    # On SQLite a call of the store is many statements, and any of them may be the last.
    watched = Sqlite().watch(plain, steps) if isinstance(plain, SqliteStore) else cast(Store, Watched(plain, steps))
    try:
        await Worker(WorkerPlan(store=watched, parts=Parts(tasks=tasks()))).run(until_empty=True)
    finally:
        await plain.close()


if __name__ == "__main__":
    nurse(Life, lambda life: asyncio.run(live(life, Chosen(life))))
