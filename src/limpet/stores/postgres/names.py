"""Names the numbers and effects in statements: `:READY` in SQL stands for the number that the tables hold.

A name is replaced when a statement is read, so it costs nothing on the server. The numbers are stored: a name may be
added here, and no name ever gets another number.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from limpet.core.endings.effect import BLANK, COUNT, MADE, SESSION, STOPPED
from limpet.core.gate import CLOSED, COUNTING, FOREVER_MS, FULL_PACE, MOST, MOST_BREAKERS, OPEN, RAMP_JOBS, UNLIMITED
from limpet.core.jobs.job import LEAST_URGENT, URGENT
from limpet.core.jobs.lease import MAX_EVENTS, MAX_EVENTS_BYTES
from limpet.core.jobs.state import STATES
from limpet.core.text.gate_events import MARKS, SHORT
from limpet.stores import codes


def _numbered(words: str, first: int = 0) -> dict[str, int]:
    """Names by their places, counted from `first`."""
    return {word: number for number, word in enumerate(words.split(), first)}


NAMES: Final[dict[str, int]] = {
    # The states of a job, and of a parent that is not stored any more.
    **{state.name.upper(): state.code for state in STATES},
    "REMOVED": len(STATES),
    # Bits of a job's flags.
    "CANCELLING": codes.CANCELLING,
    "NOTES": codes.NOTES,
    "INPUTS": codes.INPUTS,
    "BY_PARENT": codes.BY_PARENT,
    # What is counted beyond the states: sums that only grow, over all lanes; jobs that left and entered a lane; jobs of
    # a tenant.
    "ENQUEUED": codes.ENQUEUED,
    "EVER_SUCCEEDED": codes.EVER_SUCCEEDED,
    "EVER_CANCELLED": codes.EVER_CANCELLED,
    "DISCARDED": codes.DISCARDED,
    "EVER_LOST": codes.EVER_LOST,
    "STALE": codes.STALE,
    **_numbered("ERASED MOVED TENANT_WAITING TENANT_RUNNING", 20),
    # The states of a lane.
    **_numbered("IDLE ACTIVE WAITING"),
    # The kinds of posts.
    **_numbered("POST_LANE POST_GATE POST_CHILD POST_RULE POST_POLICY POST_EVENT"),
    # What a failed parent means to its child, and a held key to a new job.
    **_numbered("IF_FAILED_CANCEL IF_FAILED_RUN IF_FAILED_WAIT"),
    **_numbered("EXISTING REPLACE DEBOUNCE"),
    # Where a list of breakers has a gate.
    "BREAKER_OPEN": OPEN,
    "BREAKER_COUNTING": COUNTING,
    "BREAKER_CLOSED": CLOSED,
    # Where a charge of `running.charged` has what.
    **_numbered("CHARGE_GATE CHARGE_SLOT CHARGE_COST CHARGE_PROBE CHARGE_OWN CHARGE_CONCURRENCY"),
    # Answers of verbs, by job.
    **_numbered("CANCEL_CANCELLED CANCEL_CANCELLING CANCEL_FINISHED CANCEL_GONE CANCEL_BEFORE"),
    **_numbered("RETRY_RETRIED RETRY_UNIQUE_HELD RETRY_NOT_DEAD RETRY_GONE"),
    **_numbered("SIGNAL_WOKEN SIGNAL_KEPT SIGNAL_ALREADY SIGNAL_FINISHED SIGNAL_GONE SIGNAL_FULL"),
    "SETTLE_STALE": 10,  # and the state that the job is in
    "SETTLE_GONE": 20,
    # Advisory locks, one of each per schema: LOCKS and one of these numbers.
    "LOCKS": 1_819_279_360,
    **_numbered("FLOOR GRAPH SWEEP FOLD LOG DOOR PRUNE DEPTH", 1),
    # What is left of a job that is not whole.
    **_numbered("ONLY_BODY ONLY_PLACE ONLY_TRACES", 1),
    # Bits of a gate's `announced_marks`: the marks of its budget, and that a job waits for it.
    **{f"MARK_{percent}": bit for bit, percent in MARKS.items()},
    "SHORT": SHORT,
    # Bounds that core has, too.
    "URGENT": URGENT,
    "LEAST_URGENT": LEAST_URGENT,
    "UNLIMITED": UNLIMITED,
    "MOST": MOST,
    "MOST_BREAKERS": MOST_BREAKERS,
    "FULL_PACE": FULL_PACE,
    "RAMP_JOBS": RAMP_JOBS,
    "FOREVER_MS": FOREVER_MS,
    "MAX_EVENTS": MAX_EVENTS,
    "MAX_EVENTS_BYTES": MAX_EVENTS_BYTES,
    "TOKENS_PER_MS": 2048,  # as many leases a claim can give in one instant
}


def _quoted(value: object) -> str:
    """A text, or what JSON says of another value, as a literal of SQL."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "'" + text.replace("'", "''") + "'"


# Effects that core has made beforehand, as JSON, and the places in their texts that only a store can fill in; the words
# for states, by their codes.
EFFECTS: Final[dict[str, str]] = {
    **{f"EFFECT_{name.upper()}": _quoted(effect) for name, effect in MADE.items()},
    "EFFECT_BLANK": _quoted(BLANK),
    "EFFECTS_STOPPED": _quoted(STOPPED),
    "COUNT": _quoted(COUNT),
    "SESSION": _quoted(SESSION),
    "STATES": _quoted(STATES),
}

_NAME: Final = re.compile(r"(?<![:\w]):([A-Z][A-Z0-9_]*)\b")
_STAND_FOR: Final = {**{name: str(number) for name, number in NAMES.items()}, **EFFECTS}


def resolve(sql: str) -> str:
    """The SQL with what its names stand for; a name that is not known is an error."""
    return _NAME.sub(_stands_for, sql)


def _stands_for(found: re.Match[str]) -> str:
    text = _STAND_FOR.get(found.group(1))
    if text is None:
        raise ValueError(f"{found.group(0)} stands for nothing; the names are in {__name__}")
    return text
