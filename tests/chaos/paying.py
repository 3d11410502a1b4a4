"""A worker whose handler pays in one transaction with its job's end, and that is killed at the n-th of its steps.

As a program it is a nursery of such workers.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

import psycopg
from msgspec import Struct

from limpet.core.tasks.task import TaskSpec
from limpet.runtime import Parts, Worker, WorkerPlan, current_job
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library
from tests.chaos.nursery import nurse

VERBS: Final = frozenset(name for name, member in vars(Store).items() if inspect.iscoroutinefunction(member))
PAID: Final = "paid"


class Life(Struct, frozen=True):
    """One worker's life: where it works, how its handler runs, and before which step it dies (0: none)."""

    ground: str
    url: str
    namespace: str
    executor: str
    dies_at: int = 0


class Steps:
    """Counts what the worker does; the n-th step is never taken."""

    def __init__(self, dies_at: int = 0) -> None:
        self.taken: list[str] = []
        self._dies_at = dies_at

    def take(self, what: str) -> None:
        self.taken.append(what)
        if len(self.taken) == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Ground(Protocol):
    """An engine whose store shares its database with what handlers write."""

    def connect(self, url: str, steps: Steps) -> Any:
        """A connection to that database, as psycopg's and SQLite's are; every statement is a step."""

    def watch(self, store: Store, steps: Steps) -> Store:
        """The same store, where every verb is a step before and after it, and every statement too if they are many."""


class Sqlite:
    """A file."""

    def connect(self, url: str, steps: Steps) -> Any:
        conn = library.connect(url.removeprefix("sqlite:///").partition("?")[0], timeout=30)
        conn.set_trace_callback(steps.take)
        return conn

    def watch(self, store: Store, steps: Steps) -> Store:
        assert isinstance(store, SqliteStore)
        plain = store._connect

        def traced() -> Any:
            conn = plain()
            conn.set_trace_callback(lambda statement: None if statement.startswith("PRAGMA") else steps.take(statement))
            return conn

        store._connect = traced  # type: ignore[method-assign]  # of this one, before it connects
        return cast(Store, Watched(store, steps))


class Postgres:
    """A database of a server; what a verb does there is one statement."""

    def connect(self, url: str, steps: Steps) -> Any:
        conn: Any = psycopg.connect(url)
        wait = conn.wait

        def traced(*args: Any) -> Any:
            steps.take("a round trip of the handler's")
            return wait(*args)

        conn.wait = traced  # every statement goes through it
        return conn

    def watch(self, store: Store, steps: Steps) -> Store:
        return cast(Store, Watched(store, steps))


GROUNDS: Final[dict[str, Ground]] = {"sqlite": Sqlite(), "postgres": Postgres()}


class Watched:
    """A store whose verbs are steps."""

    def __init__(self, store: Store, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        return partial(self._verb, name, member) if name in VERBS else member

    async def _verb(self, name: str, member: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._steps.take(f"before {name}")
        answer = await member(*args, **options)
        self._steps.take(f"after {name}")
        return answer


def task_of(life: Life, steps: Steps) -> TaskSpec:
    """A task that pays once: its rows, before and after the end of its job, are committed with that."""
    ground = GROUNDS[life.ground]

    def pay(conn: Any) -> None:
        conn.execute("INSERT INTO payment VALUES ('payment')")

    def done(conn: Any) -> None:
        conn.execute("INSERT INTO payment VALUES ('receipt')")
        conn.commit()
        steps.take("committed")
        conn.close()

    async def pays() -> str:
        conn = ground.connect(life.url, steps)
        pay(conn)
        await current_job().complete(conn, PAID)
        done(conn)
        return PAID

    def pays_in_a_thread() -> str:
        conn = ground.connect(life.url, steps)
        pay(conn)
        current_job().complete_sync(conn, PAID)
        done(conn)
        return PAID

    return TaskSpec.declare(pays if life.executor == "async" else pays_in_a_thread, name="pays", retry=None)


async def live(life: Life, steps: Steps) -> None:
    """Work until nothing is left, or until the last step."""
    store = GROUNDS[life.ground].watch(open_store(life.url, life.namespace), steps)
    try:
        parts = Parts(tasks={"pays": task_of(life, steps)})
        await Worker(WorkerPlan(store=store, parts=parts)).run(until_empty=True)
    finally:
        await store.close()


if __name__ == "__main__":
    nurse(Life, lambda life: asyncio.run(live(life, Steps(life.dies_at))))
