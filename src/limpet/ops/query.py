"""Decides what a line of the query language means: `state:dead task:send_* args.amount>100 finished<1h timeout`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

from limpet.core.errors import LimpetError, UsageError
from limpet.core.jobs.job import LEAST_URGENT, PRIORITIES
from limpet.core.jobs.state import GROUPS, STATES, State
from limpet.core.jobs.view import Compare, Query, Term
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import to_ms
from limpet.core.text.storable import checked_text
from limpet.stores.match import number_of

TEXT_FIELDS: Final = frozenset({"id", "queue", "task", "tenant", "tag", "error", "word", "cause", "unique", "flow"})
NUMBER_FIELDS: Final = frozenset({"priority", "attempt", "lost"})
TIME_FIELDS: Final = frozenset({"age", "finished", "started", "due"})
FIELDS: Final = ("state", *sorted(TEXT_FIELDS), *sorted(NUMBER_FIELDS), *sorted(TIME_FIELDS), "args.<path>")

# "!" is the same as "-": a shell command line cannot start a word with "-" without looking like an option.
_CONDITION: Final = re.compile(
    r"""\s*(?P<no>[-!]?)(?P<field>[^\s:<>="!-][^\s:<>="]*)
        (?P<op>:?(?:<=|>=|<|>)|:|=)
        (?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)""",
    re.VERBOSE,
)
# A word without a field. Quotes make one of anything.
_PLAIN: Final = r'[^\s":<>=!-][^\s":<>=]*'
_WORD: Final = re.compile(rf"""\s*(?P<no>[-!]?)(?P<word>"(?:[^"\\]|\\.)*"|{_PLAIN})(?=\s|$)""")
_HEAD: Final = re.compile(r'[-!]?[^\s:<>="!-][^\s:<>="]*(?::?(?:<=|>=|<|>)|:|=)')
# What people call a field before they know its name here.
_ELSEWHERE: Final = {
    **dict.fromkeys(("name", "type", "function", "func"), "task"),
    **dict.fromkeys(("created", "enqueued", "submitted"), "age"),
    **dict.fromkeys(("ended", "succeeded", "failed", "completed"), "finished"),
    **dict.fromkeys(("exception", "message", "reason"), "error"),
    **dict.fromkeys(("retries", "tries", "attempts"), "attempt"),
    **dict.fromkeys(("eta", "scheduled"), "due"),
    "status": "state",
}
_STATE_WORDS: Final = {**{state.value: frozenset({state}) for state in STATES}, **GROUPS}


class InvalidQuery(UsageError):
    """A query says something that no job could be asked."""

    code = "invalid_query"


def parse_query(text: str, *, limit: int = 50, cursor: str | None = None, newest_first: bool = True) -> Query:
    """The query that `text` means; all conditions must hold, and a comma between states means either.

    A word without a field is looked for in the task's name and in the error.

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
        sign = "-" if term.negated else ""
        if term.field == "word":
            words.append(sign + (term.value if re.fullmatch(_PLAIN, term.value) else _quoted(term.value)))
            continue
        value = f"{term.value}ms" if term.field in TIME_FIELDS else term.value
        if not value or re.search(r'[\s"]|^[<>]', value):
            value = _quoted(value)
        words.append(f"{sign}{term.field}{':' if term.op == '=' else term.op}{value}")
    return " ".join(words)


def line_of(words: Iterable[str]) -> str:
    """The line that the words of a command line mean: a shell has taken the quotes off error:"not found".

    >>> line_of(["state:dead", "error:not found", "connection reset"])
    'state:dead error:"not found" "connection reset"'
    """
    return " ".join(map(_requoted, words))


def looks_like_query(word: str) -> bool:
    """True when `word` is a condition rather than a job id."""
    return _CONDITION.match(word) is not None


def _requoted(word: str) -> str:
    parts = word.split()
    if len(parts) < 2 or '"' in word or all(map(looks_like_query, parts)):
        return word
    head = _HEAD.match(word)
    at = 0 if head is None else head.end()
    return word[:at] + _quoted(word[at:])


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _conditions(text: str) -> list[tuple[bool, str, Compare, str]]:
    found: list[tuple[bool, str, Compare, str]] = []
    at = 0
    while text[at:].strip():
        match = _CONDITION.match(text, at)
        if match is None:
            match = _word(text, at)
            found.append((bool(match["no"]), "word", "=", _unquoted(match["word"])))
        else:
            found.append((bool(match["no"]), match["field"], _sign(match["op"]), _value(match)))
        at = match.end()
    return found


def _word(text: str, at: int) -> re.Match[str]:
    match = _WORD.match(text, at)
    if match is None:
        shown = text[at:].split()[0]
        raise InvalidQuery(
            f"{shown!r} is not a condition",
            fix=f'write field:value, such as error:{shown.strip(chr(34)) or "Timeout"}; quote spaces: error:"a b"',
        )
    if match["word"] == '""':
        raise InvalidQuery('"" is not a word', fix='write a part of a task or an error: timeout, "not found"')
    return match


def _sign(sign: str) -> Compare:
    return cast(Compare, sign.lstrip(":") or "=")


def _value(match: re.Match[str]) -> str:
    if not match["value"]:
        raise InvalidQuery(f"{match[0].strip()!r} has no value", fix='write field:value, or field:"" for empty')
    return _unquoted(match["value"])


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
    if field in TEXT_FIELDS and op == "=":
        return Term(field, value, op, negated)
    if field.startswith("args."):
        return _argument(field, op, value, negated=negated)
    if field in TEXT_FIELDS:
        raise InvalidQuery(f"{field} cannot be compared with {op}", fix=f"write {field}:{value}; * matches anything")
    if field in NUMBER_FIELDS:
        return Term(field, _number(field, value), op, negated)
    if field in TIME_FIELDS:
        return Term(field, _time(field, op, value), op, negated)
    meant = _ELSEWHERE.get(field.lower())
    hint = f"did you mean {meant!r}?" if meant else did_you_mean(field, list(FIELDS))
    raise InvalidQuery(f"{field!r} is not a field", fix=f"{hint}; quote text that you search for")


def _argument(field: str, op: Compare, value: str, *, negated: bool) -> Term:
    if not field.removeprefix("args.").strip("."):
        raise InvalidQuery("args. needs a path", fix="name the argument: args.user.id:42")
    if op != "=" and number_of(value) is None:
        raise InvalidQuery(
            f"{field}{op} compares numbers, and {value!r} is not one",
            fix=f"write {field}{op}5, or {field}:{value} for this text",
        )
    return Term(field, value, op, negated)


def _time(field: str, op: Compare, value: str) -> str:
    if op == "=":
        raise InvalidQuery(f"{field} is never exact", fix=f"write {field}>{value} or {field}<{value}")
    try:
        return str(to_ms(value, what=field))
    except LimpetError as error:
        raise InvalidQuery(
            f"{field}{op} takes a duration, not {value!r}", fix=f"write {field}>5m, {field}>1h30m or {field}<2d"
        ) from error


def _number(field: str, value: str) -> str:
    if field == "priority" and value.lower() in PRIORITIES:
        return str(PRIORITIES[value.lower()])
    if not re.fullmatch(r"\d{1,18}", value):
        words = f" or one of {', '.join(PRIORITIES)}" if field == "priority" else ""
        raise InvalidQuery(f"{field} is a number, not {value!r}", fix=f"write {field}>=3{words}")
    if field == "priority" and int(value) > LEAST_URGENT:
        raise InvalidQuery(f"priority {value} does not exist", fix=f"0 is the most urgent, {LEAST_URGENT} the least")
    return value
