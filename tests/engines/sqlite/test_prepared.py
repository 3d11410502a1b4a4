"""Statements are prepared once: a claim that prepares its own anew costs three times as much."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from limpet.core.endings.transition import Succeed
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.stores.sqlite import claim, enqueue, sessions, settle
from limpet.stores.sqlite.connection import connect
from limpet.stores.sqlite.tx import Known, Tx

T = TypeVar("T")

NOW_MS = 1_700_000_000_000


def test_the_same_round_again_prepares_nothing(tmp_path: Path) -> None:
    conn = connect(str(tmp_path / "jobs.db"), "normal", "limpet_")
    known, ids = Known(), IdMaker()
    prepared: list[str] = []

    def step(work: Callable[[Tx], T]) -> T:
        tx = Tx(conn, "limpet_", known, NOW_MS)
        answer = work(tx)
        tx.finish()
        return answer

    def one_round(seq: int) -> None:
        lane, policy = Lane("default", "noop"), Policy()
        jobs = [Job(ids.make(NOW_MS), lane, policy, b"{}") for _ in range(3)]
        step(lambda tx: enqueue.enqueue(tx, jobs, ()))
        claimed = step(lambda tx: claim.claim(tx, ClaimRequest("w", Serves(), 3, 3, seq)))
        assert len(claimed.jobs) == 3
        step(lambda tx: settle.settle(tx, "w", seq, [Succeed(job.id, job.token) for job in claimed.jobs]))

    def note(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        prepared.append(f"{action} {first}.{second}")  # asked while a statement is prepared, never while it runs
        return sqlite3.SQLITE_OK

    step(lambda tx: sessions.beat(tx, Beat("w", 15_000, Serves()), ""))
    conn.set_authorizer(note)  # forgets what was prepared before
    one_round(1)
    assert prepared
    prepared.clear()
    one_round(2)
    one_round(3)
    conn.close()
    assert prepared == []
