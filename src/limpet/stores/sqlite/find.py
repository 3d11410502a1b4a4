"""Finds stored jobs, a page at a time: by one index, and a bounded number of candidates."""

from __future__ import annotations

import math
import re
import time
from typing import Any, Final

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import PRIORITIES
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Page, Query, Term
from limpet.stores.match import number_in
from limpet.stores.search import (
    CANDIDATES,
    LOOK_S,
    RESOLVE,
    SURE,
    ended_from_ms,
    hex_suffix,
    named,
    read_cursor,
    write_cursor,
)
from limpet.stores.sqlite.tx import Tx
from limpet.stores.sqlite.views import COLUMNS, view, views

LEAST, GROWTH = 64, 4  # a search goes in growing steps

Position = list[int | bytes]

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
_TOGETHER: Final = frozenset(index for _, index in TOGETHER.values())

TEXT: Final = {
    "queue": "l.queue",
    "task": "l.task",
    "tenant": "l.tenant",
    "cause": "j.cause",
}
NUMBERS: Final = {"priority": "j.priority", "attempt": "j.attempt", "lost": "j.lost"}
# Fields that are a part of one of several texts.
PARTS: Final = {"error": ("j.error_type", "j.reason"), "word": ("l.task", "j.error_type", "j.reason")}
# How far an instant of a job is from now; NULL for a job that has none. Every ? is now.
TIMES: Final = {
    "age": "? - j.enqueued_ms",
    "finished": "? - j.finished_ms",
    "started": f"CASE WHEN j.state = {State.running.code} THEN ? - j.claimed_ms END",
    "due": f"""CASE WHEN j.state = {State.scheduled.code} AND j.due_ms > ? AND j.due_ms < {FOREVER_MS}
        THEN j.due_ms - ? END""",
}


class Source(Struct, frozen=True):
    """Where the candidates of a query come from, in order, and what is still to be asked of each."""

    keys: tuple[str, ...]  # of the order
    index: str
    where: list[str]
    args: list[Any]  # the values of the conditions
    terms: list[Term]

    def after(self, position: Position | None, *, newest_first: bool) -> tuple[str, list[Any]]:
        """The candidates behind a position, as the rest of a statement with its values."""
        direction, past = ("DESC", "<") if newest_first else ("ASC", ">")
        where, args = [*self.where], [*self.args]
        if position is not None:
            where.append(f"({', '.join(self.keys)}) {past} ({','.join('?' * len(position))})")
            args += position
        order = ", ".join(f"{key} {direction}" for key in self.keys)
        return f"WHERE {' AND '.join(where) or '1'} ORDER BY {order}", args


def find(tx: Tx, query: Query) -> Page:
    """One page: candidates by an index, then the terms as a filter.

    It goes in growing steps, so that a page which is full soon costs little.
    """
    if query.suffix is not None:
        return named(views(tx, resolve(tx, query.suffix)))
    source = _source(query, tx.now_ms)
    after = None if query.cursor is None else read_cursor(query.cursor, source.index, Position)
    most = CANDIDATES if source.terms else query.limit + 1  # without a filter each candidate is on the page
    step, looked, found, width = max(LEAST, query.limit + 1), 0, list[Any](), len(source.keys)
    until_s = math.inf if source.index in _TOGETHER else time.monotonic() + LOOK_S
    while True:
        count = min(step, most - looked)
        rows, last = _look(tx, query, source, after, count)
        found += rows
        looked, step = looked + count, step * GROWTH
        full = len(found) > query.limit
        if full or last is None or looked >= most or (looked >= SURE and time.monotonic() >= until_s):
            break
        after = last
    jobs = tuple(view(tx, row[:-width]) for row in found[: query.limit])
    if full:
        return Page(jobs, write_cursor(source.index, found[query.limit - 1][-width:]), complete=True)
    return Page(jobs, None if last is None else write_cursor(source.index, last), complete=last is None)


def _look(tx: Tx, query: Query, source: Source, after: Position | None, count: int) -> tuple[list[Any], Any]:
    """Those of the next candidates that fit; and the position of the last one, None where the index ends before."""
    rest, args = source.after(after, newest_first=query.newest_first)
    table = tx.table("limpet_job") + (f" INDEXED BY {tx.table(source.index)}" if source.index else "")
    filters: list[str] = []
    wanted: list[Any] = []
    for term in source.terms:
        condition, values = _condition(term, tx.now_ms)
        filters.append(f"NOT coalesce({condition}, 0)" if term.negated else condition)
        wanted += values
    order = ", ".join(f"j.{key} {'DESC' if query.newest_first else 'ASC'}" for key in source.keys)
    sql = (
        f"SELECT {COLUMNS}, {', '.join(f'j.{key}' for key in source.keys)} "
        f"FROM (SELECT id FROM {table} {rest} LIMIT {count}) c "
        f"CROSS JOIN {tx.table('limpet_job')} j ON j.id = c.id LEFT JOIN {tx.table('limpet_body')} b ON b.id = c.id "
        f"CROSS JOIN {tx.table('limpet_lane')} l ON l.id = j.lane "
        f"WHERE {' AND '.join(filters) or '1'} ORDER BY {order} LIMIT {query.limit + 1}"
    )
    rows = tx.conn.execute(sql, args + wanted).fetchall()
    last = tx.conn.execute(f"SELECT {', '.join(source.keys)} FROM {table} {rest} LIMIT 1 OFFSET {count - 1}", args)
    return rows, last.fetchone()


def _source(query: Query, now_ms: int) -> Source:
    """Where to look for what is asked for."""
    states, terms = query.states, list(query.terms)
    among = [] if states is None else [f"state IN ({','.join(str(state.code) for state in sorted(states))})"]
    for term in terms:
        if term.field in TOGETHER and not term.negated and "*" not in term.value:
            terms.remove(term)
            column, index = TOGETHER[term.field]
            value = id_bytes(term.value) if term.field == "flow" else term.value
            return Source(("id",), index, [f"{column} = ?", *among], [value], terms)
    if states is not None and len(states) == 1:
        state = next(iter(states))
        keys, index = INDEXES[state]
        where, args = [f"state = {state.code}"], list[Any]()
        if state.code >= State.succeeded.code:
            where.append("state >= 4")
            if (from_ms := ended_from_ms(query, now_ms)) is not None:
                where.append("finished_ms >= ?")
                args.append(from_ms)
        return Source(keys, index, where, args, terms)
    return Source(("id",), "", among, [], terms)


def _condition(term: Term, now_ms: int) -> tuple[str, list[Any]]:
    field, value = term.field, term.value
    if field in TEXT:
        return _text(TEXT[field], value)
    if field in NUMBERS:
        number = PRIORITIES.get(value, value) if field == "priority" else value
        return f"{NUMBERS[field]} {term.op} ?", [_number(term, number)]
    if field in TIMES:
        since = TIMES[field]
        return f"{since} {term.op} ?", [*[now_ms] * since.count("?"), _number(term, value)]
    if field == "id":
        return "j.id = ?", [id_bytes(value)]
    if field == "state":
        return "j.state = ?", [State(value).code]
    if field in PARTS:
        like = [rf"{text} LIKE ? ESCAPE '\'" for text in PARTS[field]]
        return f"({' OR '.join(like)})", [_part(value)] * len(like)
    if field.startswith("args."):
        return _argument(term)
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


def _argument(term: Term) -> tuple[str, list[Any]]:
    path = "$." + ".".join(f'"{part}"' for part in term.field[5:].split("."))
    args = "CAST(coalesce(j.args, b.args) AS TEXT)"
    if term.op == "=":
        return f"CAST(json_extract({args}, ?) AS TEXT) GLOB ?", [path, _glob(term.value)]
    number_in(term)
    # Doubles, which SQLite would compare, are not exact: it only says where a number is.
    return (
        f"(json_type({args}, ?) IN ('integer', 'real') AND argument_compares({args}, ?, ?, ?))",
        [path, term.field, term.op, term.value],
    )


def _part(value: str) -> str:
    """A part of a text, as a pattern in which only * stands for others."""
    plain = re.sub(r"([%_\\])", r"\\\1", value)
    return f"%{plain.replace('*', '%')}%"


def _text(column: str, value: str) -> tuple[str, list[Any]]:
    return (f"{column} GLOB ?", [_glob(value)]) if "*" in value else (f"{column} = ?", [value])


def _glob(value: str) -> str:
    return value.replace("[", "[[]").replace("?", "[?]")


def resolve(tx: Tx, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, among the newest and the waiting."""
    plain = hex_suffix(suffix)
    if plain is None:
        return []
    if len(plain) == 32:
        raw = bytes.fromhex(plain)
        return [raw] if tx.row("job_state", (raw,)) is not None else []
    return [id for (id,) in tx.rows("by_suffix", (f"%{plain}", RESOLVE))]
