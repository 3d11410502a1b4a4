"""Decides what a line of the query language means: `state:dead queue:mail task:send_* age>1h -task:noop`."""

from __future__ import annotations

import re
from typing import Final

from limpet.core.errors import LimpetError, UsageError
from limpet.core.jobs.job import LEAST_URGENT, PRIORITIES
from limpet.core.jobs.state import GROUPS, STATES, State
from limpet.core.jobs.view import Compare, Query, Term
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import to_ms
from limpet.core.text.storable import checked_text

TEXT_FIELDS: Final = frozenset({"id", "queue", "task", "tenant", "tag", "error", "cause", "unique", "flow"})
NUMBER_FIELDS: Final = frozenset({"priority", "attempt", "lost", "age"})
FIELDS: Final = ("state", *sorted(TEXT_FIELDS), *sorted(NUMBER_FIELDS), "args.<path>")
EXAMPLE: Final = "state:dead queue:mail task:send_* args.user.id:42 age>1h -task:noop"

# "!" is the same as "-": a shell command line cannot start a word with "-" without looking like an option.
_CONDITION: Final = re.compile(
    r"""\s*(?P<no>[-!]?)(?P<field>[^\s:<>="!-][^\s:<>="]*)
        (?P<op>:?(?:<=|>=|<|>)|:|=)
        (?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)""",
    re.VERBOSE,
)
_STATE_WORDS: Final = {**{state.value: frozenset({state}) for state in STATES}, **GROUPS}


class InvalidQuery(UsageError):
    """A query says something that no job could be asked."""

    code = "invalid_query"


def parse_query(text: str, *, limit: int = 50, cursor: str | None = None, newest_first: bool = True) -> Query:
    """The query that `text` means; all conditions must hold, and a comma between states means either.

    >>> parse_query("state:dead,cancelled attempt>=3 -task:noop").terms[1]
    Term(field='task', value='noop', op='=', negated=True)
    """
    checked_text(text, what="query")
    states: frozenset[State] | None = None
    terms: list[Term] = []
    for negated, field, op, value in _conditions(text):
        if field == "state":
            named = _states(op, value)
            wanted = frozenset(STATES) - named if negated else named
            states = wanted if states is None else states & wanted
            if not states:
                raise InvalidQuery(
                    f"no job can be in all these states at once: {text!r}",
                    fix="join the states with a comma: state:dead,cancelled",
                )
        else:
            terms.append(_term(field, op, value, negated=negated))
    return Query(states=states, terms=tuple(terms), limit=limit, cursor=cursor, newest_first=newest_first)


def query_text(query: Query) -> str:
    """The line that means `query`, as the audit log keeps it."""
    words = [] if query.states is None else ["state:" + ",".join(s.value for s in STATES if s in query.states)]
    for term in query.terms:
        value = f"{term.value}ms" if term.field == "age" else term.value
        if not value or re.search(r'[\s"]|^[<>]', value):
            value = '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
        words.append(f"{'-' if term.negated else ''}{term.field}{':' if term.op == '=' else term.op}{value}")
    return " ".join(words)


def looks_like_query(word: str) -> bool:
    """True when `word` is a condition rather than a job id."""
    return _CONDITION.match(word) is not None


def _conditions(text: str) -> list[tuple[bool, str, Compare, str]]:
    found: list[tuple[bool, str, Compare, str]] = []
    at = 0
    while text[at:].strip():
        match = _CONDITION.match(text, at)
        if match is None:
            word = text[at:].split()[0]
            raise InvalidQuery(
                f"{word!r} is not a condition",
                fix=f'write field:value, such as error:{word.strip(chr(34)) or "Timeout"}; quote spaces: error:"a b"',
            )
        at = match.end()
        sign = match["op"]
        op: Compare = "="
        for known in ("<=", ">=", "<", ">"):
            if sign.endswith(known):
                op = known
                break
        value = match["value"]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        elif not value:
            raise InvalidQuery(f"{match[0].strip()!r} has no value", fix='write field:value, or field:"" for empty')
        found.append((bool(match["no"]), match["field"], op, value))
    return found


def _states(op: Compare, value: str) -> frozenset[State]:
    if op != "=":
        raise InvalidQuery("states have no order", fix="write state:dead or state:ready,scheduled")
    states: frozenset[State] = frozenset()
    for word in value.split(","):
        named = _STATE_WORDS.get(word.lower())
        if named is None:
            raise InvalidQuery(f"{word!r} is not a state", fix=did_you_mean(word, list(_STATE_WORDS)))
        states |= named
    return states


def _term(field: str, op: Compare, value: str, *, negated: bool) -> Term:
    if field.startswith("args."):
        if not field.removeprefix("args.").strip("."):
            raise InvalidQuery("args. needs a path", fix="name the argument: args.user.id:42")
        if op != "=":
            raise InvalidQuery(f"arguments can be matched, not compared with {op}", fix=f"write {field}:{value}")
        return Term(field, value, op, negated)
    if field in TEXT_FIELDS:
        if op != "=":
            raise InvalidQuery(
                f"{field} cannot be compared with {op}", fix=f"write {field}:{value}; * matches anything"
            )
        return Term(field, value, op, negated)
    if field in NUMBER_FIELDS:
        return Term(field, _number(field, op, value), op, negated)
    raise InvalidQuery(f"{field!r} is not a field", fix=did_you_mean(field, list(FIELDS)))


def _number(field: str, op: Compare, value: str) -> str:
    if field == "age":
        if op == "=":
            raise InvalidQuery("an age is never exact", fix=f"write age>{value} or age<{value}")
        try:
            return str(to_ms(value, what="age"))
        except LimpetError as error:
            raise InvalidQuery(f"{value!r} is not an age", fix="write age>5m, age>1h30m or age<2d") from error
    if field == "priority" and value.lower() in PRIORITIES:
        return str(PRIORITIES[value.lower()])
    if not re.fullmatch(r"\d{1,18}", value):
        words = f" or one of {', '.join(PRIORITIES)}" if field == "priority" else ""
        raise InvalidQuery(f"{field} is a number, not {value!r}", fix=f"write {field}>=3{words}")
    if field == "priority" and int(value) > LEAST_URGENT:
        raise InvalidQuery(f"priority {value} does not exist", fix=f"0 is the most urgent, {LEAST_URGENT} the least")
    return value
