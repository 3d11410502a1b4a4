"""Answers questions about stored jobs: each by one index and a bounded number of candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import PRIORITIES, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import FINISHED, STATES, State
from limpet.core.jobs.view import (
    AttemptView,
    CauseView,
    Counts,
    Entry,
    FlowView,
    Inspection,
    JobView,
    Page,
    Query,
    Term,
)
from limpet.stores.overview import AHEAD, counts_of, inspection_of, with_queues
from limpet.stores.packed import PLAIN, UNREADABLE, extra_or_none
from limpet.stores.search import CANDIDATES, RESOLVE, hex_suffix, named, read_cursor, write_cursor
from limpet.stores.sqlite import sessions
from limpet.stores.sqlite.tx import (
    CANCELLING,
    NOTES,
    Tx,
)

# State → (order of its own index, index). A page of one state follows it; any other mix follows the ids.
INDEXES: Final = {
    State.blocked: (("id",), "limpet_job_blocked"),
    State.scheduled: (("priority", "due_ms", "id"), "limpet_job_scheduled"),
    State.ready: (("lane", "due_ms", "id"), "limpet_job_ready"),
    State.running: (("token", "id"), "limpet_job_running"),
    State.succeeded: (("finished_ms", "id"), "limpet_job_finished"),
    State.dead: (("finished_ms", "id"), "limpet_job_finished"),
    State.cancelled: (("finished_ms", "id"), "limpet_job_finished"),
}

# Field → (column, its index): what few jobs share is looked up, whatever their states.
TOGETHER: Final = {"flow": ("flow", "limpet_job_flow"), "unique": ("unique_key", "limpet_job_unique")}

COLUMNS: Final = """j.id, j.state, j.lane, j.attempt, j.lost, j.enqueued_ms, j.due_ms, j.claimed_ms, j.finished_ms,
j.expires_ms, j.token, j.flags, j.reason, j.cause, j.error_type, j.held, j.policy, coalesce(j.args, b.args), j.extra"""

TEXT: Final = {
    "queue": "l.queue",
    "task": "l.task",
    "tenant": "l.tenant",
    "cause": "j.cause",
}
NUMBERS: Final = {"priority": "j.priority", "attempt": "j.attempt", "lost": "j.lost"}


def views(tx: Tx, ids: Sequence[bytes]) -> list[JobView | None]:
    """The jobs with these ids, whole."""
    found = {row[0]: row for row in tx.rows_in("views", list(ids))}
    return [view(tx, found[id]) if id in found else None for id in ids]


def view(tx: Tx, row: Any) -> JobView:
    """One job from its columns, with its result, notes and holder."""
    id, state_code, lane_id, attempt, lost, enqueued, due, claimed, finished, expires, token, flags = row[:12]
    reason, cause, error_type, held, policy_id, args, packed = row[12:]
    state = STATES[state_code]
    extra = PLAIN if packed is None else extra_or_none(packed) or UNREADABLE
    result = tx.row("result", (id,)) if state is State.succeeded else None
    session = tx.row("session_of", (token,)) if token is not None else None
    notes = tuple(Note(*note) for note in tx.rows("notes", (id,))) if flags & NOTES else ()
    return JobView(
        id=id,
        state=state,
        lane=tx.lane(lane_id),
        policy=_policy(tx, policy_id),
        args=args,
        attempt=attempt,
        lost=lost,
        enqueued_at_ms=enqueued,
        due_at_ms=due,
        claimed_at_ms=claimed,
        finished_at_ms=finished,
        expires_at_ms=expires,
        token=token,
        session=None if session is None else session[0],
        cancel_requested=bool(flags & CANCELLING),
        reason=reason or "",
        cause=cause or "",
        error_type=error_type or "",
        result=None if result is None else result[0],
        tags=extra.tags,
        meta=extra.meta,
        cost=extra.cost,
        flow=extra.flow,
        unique=extra.unique,
        after=extra.after,
        if_parent_fails=extra.if_parent_fails,  # type: ignore[arg-type]  # stored words are the literal's
        held=held,
        notes=notes,
        costs=extra.costs,
    )


def _policy(tx: Tx, policy_id: int) -> Policy:
    try:
        return tx.policy(policy_id)
    except (msgspec.DecodeError, TypeError):
        return Policy()


def find(tx: Tx, query: Query) -> Page:
    """One page: candidates by an index, then the terms as a filter."""
    if query.suffix is not None:
        return named(views(tx, resolve(tx, query.suffix)))
    keys, index, where, args, terms = _source(query)
    direction, past = ("DESC", "<") if query.newest_first else ("ASC", ">")
    if query.cursor is not None:
        values = read_cursor(query.cursor, index, list[int | bytes])
        marks = ",".join("?" * len(values))
        where.append(f"({', '.join(keys)}) {past} ({marks})")
        args += values
    order = ", ".join(f"{key} {direction}" for key in keys)
    table = tx.table("limpet_job") + (f" INDEXED BY {tx.table(index)}" if index else "")
    bound = CANDIDATES if terms else query.limit + 1  # of candidates; without a filter each is on the page
    source = f"FROM {table} WHERE {' AND '.join(where) or '1'} ORDER BY {order}"
    inner = f"SELECT id {source} LIMIT {bound}"
    filters: list[str] = []
    wanted: list[Any] = []
    for term in terms:
        condition, values = _condition(term, tx.now_ms)
        filters.append(f"NOT coalesce({condition}, 0)" if term.negated else condition)
        wanted += values
    outer_order = ", ".join(f"j.{key} {direction}" for key in keys)
    sql = (
        f"SELECT {COLUMNS}, {', '.join(f'j.{key}' for key in keys)} FROM ({inner}) c "
        f"CROSS JOIN {tx.table('limpet_job')} j ON j.id = c.id LEFT JOIN {tx.table('limpet_body')} b ON b.id = c.id "
        f"CROSS JOIN {tx.table('limpet_lane')} l ON l.id = j.lane "
        f"WHERE {' AND '.join(filters) or '1'} ORDER BY {outer_order} LIMIT {query.limit + 1}"
    )
    rows = tx.conn.execute(sql, args + wanted).fetchall()
    width = len(keys)
    jobs = tuple(view(tx, row[:-width]) for row in rows[: query.limit])
    if len(rows) > query.limit:
        return Page(jobs, write_cursor(index, rows[query.limit - 1][-width:]), complete=True)
    last = tx.conn.execute(f"SELECT {', '.join(keys)} {source} LIMIT 1 OFFSET {bound - 1}", args).fetchone()
    return Page(jobs, None if last is None else write_cursor(index, last), complete=last is None)


def _source(query: Query) -> tuple[tuple[str, ...], str, list[str], list[Any], list[Term]]:
    """(order, index, conditions, their values, terms that are left) for what is asked for."""
    states, terms = query.states, list(query.terms)
    among = [] if states is None else [f"state IN ({','.join(str(state.code) for state in sorted(states))})"]
    for term in terms:
        if term.field in TOGETHER and not term.negated and "*" not in term.value:
            terms.remove(term)
            column, index = TOGETHER[term.field]
            value = id_bytes(term.value) if term.field == "flow" else term.value
            return ("id",), index, [f"{column} = ?", *among], [value], terms
    if states is not None and len(states) == 1:
        state = next(iter(states))
        keys, index = INDEXES[state]
        where = [f"state = {state.code}"]
        if state.code >= State.succeeded.code:
            where.append("state >= 4")
        return keys, index, where, [], terms
    return ("id",), "", among, [], terms


def _condition(term: Term, now_ms: int) -> tuple[str, list[Any]]:
    field, value = term.field, term.value
    if field in TEXT:
        return _text(TEXT[field], value)
    if field in NUMBERS:
        number = PRIORITIES.get(value, value) if field == "priority" else value
        return f"{NUMBERS[field]} {term.op} ?", [_number(term, number)]
    if field == "age":
        return f"? - j.enqueued_ms {term.op} ?", [now_ms, _number(term, value)]
    if field == "id":
        return "j.id = ?", [id_bytes(value)]
    if field == "state":
        return "j.state = ?", [State(value).code]
    if field == "error":
        pattern = f"%{value.replace('%', '').replace('*', '%')}%"
        return "(j.error_type LIKE ? OR j.reason LIKE ?)", [pattern, pattern]
    if field.startswith("args."):
        path = "$." + ".".join(f'"{part}"' for part in field[5:].split("."))
        return "CAST(json_extract(CAST(coalesce(j.args, b.args) AS TEXT), ?) AS TEXT) GLOB ?", [path, _glob(value)]
    if field in ("tag", "flow", "unique"):
        # These live in the packed part: its bytes hold the text as it is, which spares most rows the decoding.
        longest = id_bytes(value) if field == "flow" else max(value.split("*"), key=len).encode()
        return "(instr(j.extra, ?) > 0 AND extra_matches(j.extra, ?, ?))", [longest, field, value]
    raise InvalidOption(f"cannot search by {field!r}", fix="see `limpet jobs --help` for the fields")


def _number(term: Term, value: object) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise InvalidOption(f"{term.field}{term.op}{term.value}: not a number", fix="write a whole number") from error


def _text(column: str, value: str) -> tuple[str, list[Any]]:
    return (f"{column} GLOB ?", [_glob(value)]) if "*" in value else (f"{column} = ?", [value])


def _glob(value: str) -> str:
    return value.replace("[", "[[]").replace("?", "[?]")


def watch(tx: Tx, id: bytes, ear: str) -> State | None:
    """Have the end of a job told to `ear`; its state now, None when it is gone."""
    row = tx.row("job_state", (id,))
    if row is None:
        return None
    state: State = STATES[row[0]]
    if state not in FINISHED:
        tx.run("job_watch", (id,))
        tx.run("watch_put", (id, ear))
    return state


def resolve(tx: Tx, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, among the newest and the waiting."""
    plain = hex_suffix(suffix)
    if plain is None:
        return []
    if len(plain) == 32:
        raw = bytes.fromhex(plain)
        return [raw] if tx.row("job_state", (raw,)) is not None else []
    return [id for (id,) in tx.rows("by_suffix", (f"%{plain}", RESOLVE))]


def attempts(tx: Tx, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    return [AttemptView(*row) for row in tx.rows("attempts", (id,))]


def log_lines(tx: Tx, log: str, after: int, limit: int, *, newest: bool) -> list[Entry]:
    """Lines of a log that come after one, oldest first: the first of them, or the newest."""
    if newest:
        return [Entry(*row) for row in reversed(tx.rows("log_read_newest", (log, after, limit)))]
    return [Entry(*row) for row in tx.rows("log_read", (log, after, limit))]


def causes(tx: Tx, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    return [CauseView(*row) for row in tx.rows("causes", (queue, queue, limit))]


def count(tx: Tx) -> Counts:
    """All counters."""
    return counts_of(tx.rows("counts"))


def queues(tx: Tx) -> Counts:
    """All counters, and every queue by name."""
    oldest = {name: tx.row("oldest_ready", (name,))[0] for (name,) in tx.rows("queue_names")}
    return with_queues(count(tx), oldest, sessions.gates(tx, "queue:"))


def flows(tx: Tx, ids: Sequence[bytes] | None, limit: int, before: bytes | None) -> list[FlowView]:
    """These flows, or the newest before one."""
    found = [_flow(tx, id) for id in (_newest_flows(tx, limit, before) if ids is None else ids)]
    return [flow for flow in found if flow is not None]


def _newest_flows(tx: Tx, limit: int, before: bytes | None) -> Iterator[bytes]:
    """A loose scan: one look at the index per flow, however many jobs each has."""
    row = tx.row("last_flow") if before is None else tx.row("flow_before", (before,))
    for _ in range(limit):
        if row[0] is None:
            return
        yield row[0]
        row = tx.row("flow_before", (row[0],))


def _flow(tx: Tx, id: bytes) -> FlowView | None:
    first, *counts = tx.row("flow_counts", (id,))
    if first is None:
        return None
    by_state = {state: count for state, count in zip(STATES, counts, strict=True) if count}
    return FlowView(id, by_state, tx.row("job_enqueued", (first,))[0])


def inspect(tx: Tx, id: bytes) -> Inspection | None:
    """All facts about a job."""
    job = views(tx, [id])[0]
    if job is None:
        return None
    lane = job.lane
    row = tx.row("lane_state", (lane.id,))
    return inspection_of(
        job,
        ("idle", "active", "waiting")[0 if row is None else row[0]],
        tx.row("ahead", (lane.id, job.due_at_ms, id, AHEAD))[0],
        [(parent, code) for parent, code in tx.rows("open_parents", (id,)) if code is not None],
        [gate for key in (*lane.class_gates, *lane.lane_gates) if (gate := tx.gate(key)) is not None],
        [each.serves for each in sessions.view(tx)],
        attempts(tx, id),
    )
