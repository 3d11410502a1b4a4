"""Asks the server where its counters, slots and lanes differ from its jobs, and has them set by the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.jobs.job import Lane
from limpet.core.jobs.repair import Difference, Kind, count_name, off_balance, tenant_name, wrong
from limpet.core.jobs.state import STATES
from limpet.stores.codes import DISCARDED, ENQUEUED, EVER_CANCELLED, EVER_SUCCEEDED
from limpet.stores.postgres.names import NAMES

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

DIFFERENCES: Final = "SELECT * FROM lp.differences_1(%b::bigint)"
LANES: Final = """SELECT * FROM lp.repair_lanes_1(
  %b::bigint, %b::bigint, %b::bigint, %b::bigint, %b::bytea, %b::integer, %b::bigint
)"""
JOBS: Final = "SELECT * FROM lp.repair_jobs_1(%b::integer, %b::bigint)"
HOLDS: Final = "SELECT * FROM lp.repair_holds_1(%b::bigint)"
COUNTS: Final = "SELECT lp.repair_counts_1()"
DEPTHS: Final = "SELECT lp.repair_depths_1()"

AT_ONCE: Final = 256  # jobs that one step changes: it holds the graph for so long
PATIENCE_S: Final = 600.0  # every table is read once, and no other call waits for that
NOWHERE: Final = Lane("unreadable", "unreadable")
_OF_TENANT: Final = {NAMES["TENANT_WAITING"]: "waiting", NAMES["TENANT_RUNNING"]: "running"}
_TOTALS: Final = {
    ENQUEUED: "enqueued",
    EVER_SUCCEEDED: "succeeded",
    EVER_CANCELLED: "cancelled",
    DISCARDED: "discarded",
}
_ENTRIES: Final[dict[str, tuple[Kind, str]]] = {
    "laneless": ("unreadable", "jobs whose queue, task and limits are not stored"),
    "wrecks": ("vanished", "jobs that left traces and no whole record"),
    "unblocked": ("index", "blocked jobs that wait for no parent"),
    "keys": ("index", "unique keys that their jobs do not hold"),
    "leases": ("lease", "leases that do not say what runs under them"),
    "unseen": ("index", "lists of ready jobs that no claim sees"),
    "lanes": ("index", "lists that count other jobs than they hold"),
    "causes": ("index", "origins that count other dead jobs than there are"),
}


async def repair(client: Client, *, dry_run: bool, now_ms: int | None) -> list[Difference]:
    """What differs now; without `dry_run` it is put right, and upper bounds are forgotten, right or not."""
    rows = await client.rows(DIFFERENCES, (now_ms,), verb="repair", timeout_s=PATIENCE_S)
    found = _read(rows)
    if found and not dry_run:
        body = msgspec.json.encode(NOWHERE)
        lane = (NOWHERE.id, NOWHERE.kind, NOWHERE.member, NOWHERE.ring, body, AT_ONCE, now_ms)
        while (await client.change(LANES, lane, verb="repair", now_ms=now_ms))[0]:
            pass
        while (await client.change(JOBS, (AT_ONCE, now_ms), verb="repair", now_ms=now_ms))[0] >= AT_ONCE:
            pass
        await client.change(HOLDS, (now_ms,), verb="repair", now_ms=now_ms)
        await client.rows(COUNTS, verb="repair", timeout_s=PATIENCE_S)
    if not dry_run:
        await client.rows(DEPTHS, verb="repair", timeout_s=PATIENCE_S)
    return found


def _read(rows: list[tuple[Any, ...]]) -> list[Difference]:
    found: list[Difference] = []
    stored, totals = dict.fromkeys(STATES, 0), dict.fromkeys(_TOTALS.values(), 0)
    for kind, place, number, rightly, ids in rows:
        if kind in _ENTRIES:
            found += wrong(*_ENTRIES[kind], ids or (), number)
        elif kind == "count":
            found.append(Difference("count", count_name(place[0], place[1], STATES[int(place[2])]), number, rightly))
        elif kind == "tenant":
            name = tenant_name(place[0], place[1], _OF_TENANT[int(place[2])])
            found.append(Difference("count", name, number, rightly))
        elif kind == "stored":
            stored[STATES[int(place[0])]] = number
        elif kind == "total":
            totals[_TOTALS[int(place[0])]] = number
        else:
            found.append(Difference(kind, place[0], number, rightly))
    balance = off_balance(stored, totals)
    return found if balance is None else [*found, balance]
