"""No statement of a hot path reads jobs that it does not want: its plan never scans the table of jobs."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from limpet.core.endings.hook import QUEUE, Hook
from limpet.core.endings.transition import Succeed
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.connection import connect
from limpet.stores.sqlite.statements import sources, statements

# Looks at the newest ids on purpose, for a person who typed the end of one.
SCANS = {"by_suffix"}
SMALL = re.compile(r"SCAN (limpet_)?(job|j|body|b|attempt|dep|d|result|note|unique)\b")


def is_whole(name: str) -> bool:
    """Whether a statement looks at everything on purpose: those of a repair compare all with all."""
    return name in SCANS or name.startswith("repair_")


def test_no_statement_scans_jobs(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "plan.db"), "normal", "limpet_")) as conn:
        scans = {name: scans_in(conn, sql) for name, sql in statements("limpet_").items() if not is_whole(name)}
    assert {name: lines for name, lines in scans.items() if lines} == {}


def scans_in(conn: sqlite3.Connection, sql: str) -> list[str]:
    """The lines of a statement's plan that read a whole table of jobs."""
    sql = sql.replace(":keys", "?, ?").replace(":rows", "(?, ?, ?)")
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    marks = max(numbered) if numbered else sql.count("?")
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * marks)]
    return [line for line in plan if SMALL.search(line) and "USING" not in line.replace("COVERING ", "")]


def test_every_statement_file_says_what_it_promises() -> None:
    for name, text in sources().items():
        assert text.startswith("-- Promise:"), name


async def test_a_tenant_with_very_many_lanes_moves_with_few_rows() -> None:
    """Whatever a tenant's limits split it into, a turn of it costs the same."""
    store = SqliteStore(None)
    rule = [GateRule(f"limit:{tenant}{n}", concurrency=9) for tenant in "ab" for n in range(300)]
    jobs = [
        Job(
            bytes([ord(tenant)]) + n.to_bytes(15, "big"),
            Lane("q", "t", tenant=tenant, keys=(f"{tenant}{n}",)),
            Policy(),
            b"{}",
        )
        for tenant in "ab"
        for n in range(300)
    ]
    await store.enqueue(jobs, rule)
    await store.beat(Beat("s", 15_000, Serves()))

    def changes(conn: sqlite3.Connection) -> int:
        return conn.total_changes

    before = await store.process.writer.submit("look", changes)
    claim = await store.claim(ClaimRequest("s", Serves(), 10, 10, 1))
    after = await store.process.writer.submit("look", changes)
    assert sorted(chr(job.id[0]) for job in claim.jobs) == list("aaaaabbbbb")
    assert after - before < 100
    await store.close()


async def test_a_hook_for_deaths_costs_successes_no_statement() -> None:
    store = SqliteStore(None)
    await store.beat(Beat("s", 15_000, Serves(("q",))))
    ran: list[str] = []
    lengths = []
    for seq in (1, 2, 3):
        if seq == 3:
            await store.put_control(Hook(Lane(QUEUE, "alert"), states=(State.dead,)).control())
        ids = [bytes([seq]) + n.to_bytes(15, "big") for n in range(5)]
        await store.enqueue([Job(id, Lane("q", "t"), Policy(), b"{}") for id in ids])
        claim = await store.claim(ClaimRequest("s", Serves(("q",)), 10, 10, seq))
        await store.process.writer.submit("watch", lambda conn: conn.set_trace_callback(ran.append))
        await store.settle("s", seq, [Succeed(job.id, job.token) for job in claim.jobs])
        await store.process.writer.submit("leave", lambda conn: conn.set_trace_callback(None))
        lengths.append(len([each for each in ran if not each.startswith("--")]))
        ran.clear()
    first, usual, hooked = lengths
    assert first > 3
    assert hooked <= usual + 1, "beside the hooks themselves"
    await store.close()


async def test_a_class_is_known_by_another_lane_when_its_first_is_pruned() -> None:
    store = SqliteStore(None)
    lanes = [Lane("q", "t", tenant="a", keys=(str(n),)) for n in range(2)]
    jobs = [Job(n.to_bytes(16, "big"), lane, Policy(), b"{}") for n, lane in enumerate(lanes)]
    await store.enqueue(jobs, now_ms=1_000)
    await store.cancel([jobs[0].id], "not needed", now_ms=1_000)
    await store.prune(Retention(cancelled_ms=0), now_ms=10_000_000)
    store.process.known.lanes.clear()
    await store.beat(Beat("s", 15_000, Serves()), now_ms=10_000_000)
    claim = await store.claim(ClaimRequest("s", Serves(), 10, 10, 1), now_ms=10_000_000)
    assert [job.id for job in claim.jobs] == [jobs[1].id]
    await store.close()
