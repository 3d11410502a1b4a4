"""Turns transitions and notes into arguments of functions, and what became of them back into records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from limpet.core.endings.effect import NO_RESULT, Effect, effect_of
from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES, State
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.callers import caller_of
from limpet.stores.postgres.enqueue import NameOf, check_caller, lane_body
from limpet.stores.postgres.wire import clean_json, in_schema

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

SETTLE: Final = """SELECT * FROM lp.settle_1(
  %b::text, %b::bigint, %b::bytea[], %b::bigint[], %b::bytea[], %b::jsonb[], %b::jsonb[], %b::bigint
)"""
SAVE: Final = "SELECT lp.save_1(%b::bytea, %b::bigint, %b::text, %b::text, %b::bytea, %b::bigint)"
SETTLE_ON: Final = "SELECT lp.settle_on_1($1::bytea, $2::bigint, $3::bytea, $4::bigint)"

NO_TOKEN: Final = -1  # no lease has it
LAST_TOKEN: Final = (1 << 53) - 1
MOST_SPENT: Final = 1 << 53  # of any unit, by one job

# A code of the function's answer → what it means.
ANSWERS: Final = {
    20: Settled("gone"),
    **{state.code: Settled("done", state) for state in STATES},
    **{10 + state.code: Settled("stale", state) for state in STATES},
}
SUCCEEDED: Final = ANSWERS[State.succeeded.code]

_shut_gates = msgspec.json.Decoder(list[tuple[int, tuple[str, ...]]]).decode


async def settle(
    client: Client,
    session: str,
    seq: int,
    transitions: Sequence[Transition],
    now_ms: int | None,
    spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
) -> list[Settled]:
    """Apply each transition whose token still holds its job; `spent` is what jobs actually cost."""
    if not transitions:
        return []
    values = (session, seq, *columns(transitions, spent), now_ms)
    codes, shut = await client.change(SETTLE, values, verb="settle", now_ms=now_ms)
    return answers(len(transitions), codes, shut)


def columns(
    transitions: Sequence[Transition], spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT
) -> tuple[Any, ...]:
    """Transitions as the function takes them: ids, tokens, results, the effects of all but successes, and costs."""
    tokens = [transition.token for transition in transitions]
    if min(tokens) < 0 or max(tokens) > LAST_TOKEN:
        tokens = [token if 0 <= token <= LAST_TOKEN else NO_TOKEN for token in tokens]
    results: list[bytes | None] = []
    effects: list[bytes | None] = []
    for transition in transitions:
        if type(transition) is Succeed:  # by far the most common end, and known to the function
            results.append(None if transition.result in NO_RESULT else transition.result)
            effects.append(None)
        else:
            effect = effect_of(transition)
            results.append(effect.result)
            effect = effect if effect.result is None else replace(effect, result=None)
            effects.append(effect_json(effect))
    return (
        [transition.id for transition in transitions],
        tokens,
        results if any(results) else None,
        effects if any(effects) else None,
        [clean_json(_bounded(spent.get(transition.id, {}))) for transition in transitions] if spent else None,
    )


def effect_json(effect: Effect) -> bytes:
    """The effect as lp.effect has it; a result goes beside it."""
    said: Any = effect if effect.lane is None else {**msgspec.to_builtins(effect), "lane": new_lane(effect.lane)}
    return clean_json(said)


def new_lane(lane: Lane) -> dict[str, Any]:
    """A lane as lp.new_lane has it."""
    ids = {"id": lane.id, "class": lane.kind, "member": lane.member, "ring": lane.ring}
    return {**ids, "body": lane_body(lane).decode()}


def _bounded(spent: Mapping[str, int]) -> dict[str, int]:
    """Numbers that stay far from those with which the functions could not reckon."""
    return {unit: min(max(amount, -MOST_SPENT), MOST_SPENT) for unit, amount in spent.items()}


def answers(count: int, codes: Sequence[int] | None, shut: str | None) -> list[Settled]:
    """The answers to `count` transitions, and the gates that are shut after each."""
    settled = [SUCCEEDED] * count if codes is None else [ANSWERS[code] for code in codes]
    for place, gates in _shut_gates(shut) if shut is not None else ():
        settled[place - 1] = replace(settled[place - 1], shut=gates)
    return settled


async def settle_on(
    schema: str, name_of: NameOf, conn: object, id: bytes, token: int, result: bytes | None, now_ms: int | None
) -> bool:
    """Note inside the caller's own transaction that a job has succeeded; `name_of` tells the store's own database."""
    caller = caller_of(conn)
    await check_caller(caller, schema, name_of)
    if not 0 <= token <= LAST_TOKEN:
        return False
    ((noted,),) = await caller.run(in_schema(SETTLE_ON, schema), (id, token, result, now_ms))
    return bool(noted)


async def save(client: Client, id: bytes, token: int, note: Note, now_ms: int | None) -> bool:
    """Write a note of a running job; False when the token is stale."""
    values = (id, token if 0 <= token <= LAST_TOKEN else NO_TOKEN, note.kind, note.name, note.body, now_ms)
    (saved,) = await client.row(SAVE, values, verb="save")
    return bool(saved)
