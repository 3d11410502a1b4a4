"""Finds stored jobs, a page at a time: by one index, and a bounded number of candidates."""

from __future__ import annotations

import re
from typing import Any, Final

from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import PRIORITIES
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Page, Query, Term
from limpet.stores.match import number_in
from limpet.stores.search import CANDIDATES, RESOLVE, ended_from_ms, hex_suffix, named, read_cursor, write_cursor
from limpet.stores.sqlite.tx import Tx
from limpet.stores.sqlite.views import COLUMNS, view, views

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


def find(tx: Tx, query: Query) -> Page:
    """One page: candidates by an index, then the terms as a filter."""
    if query.suffix is not None:
        return named(views(tx, resolve(tx, query.suffix)))
    keys, index, where, args, terms = _source(query, tx.now_ms)
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


def _source(query: Query, now_ms: int) -> tuple[tuple[str, ...], str, list[str], list[Any], list[Term]]:
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
        where, args = [f"state = {state.code}"], list[Any]()
        if state.code >= State.succeeded.code:
            where.append("state >= 4")
            if (from_ms := ended_from_ms(query, now_ms)) is not None:
                where.append("finished_ms >= ?")
                args.append(from_ms)
        return keys, index, where, args, terms
    return ("id",), "", among, [], terms


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
