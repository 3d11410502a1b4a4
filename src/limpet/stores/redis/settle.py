"""Turns transitions and notes into arguments of scripts, and what became of them back into records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from limpet.core.endings.effect import NO_RESULT, Effect, effect_of
from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.redis.enqueue import definition
from limpet.stores.redis.record import MOST_COST
from limpet.stores.redis.scripts import script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

_pack = msgspec.msgpack.Encoder().encode
_shut_gates = msgspec.msgpack.Decoder(list[tuple[int, tuple[str, ...]]]).decode

NO_TOKEN: Final = b"\xff" * 7  # no lease has it: tokens are positive and below 2^53
MOST: Final = 0xFFFF  # what two bytes can count

# One character of the script's answer → what it means.
ANSWERS: Final = {
    ord("-"): Settled("gone"),
    **{ord("0") + state.code: Settled("done", state) for state in STATES},
    **{ord("A") + state.code: Settled("stale", state) for state in STATES},
}


def _encoded(transition: Transition) -> tuple[bytes, bytes | None]:
    """Its kind, and its body if it has one. A success, by far the most common end, is known to the script."""
    if type(transition) is Succeed:
        return (b"s", None) if transition.result in NO_RESULT else (b"S", transition.result)
    effect = effect_of(transition)
    return b"e", _pack(effect if effect.lane is None else _with_definition(effect, effect.lane))


def _with_definition(effect: Effect, lane: Lane) -> dict[str, Any]:
    """The effect with the lane as an enqueue sends it, its parts in hex: scripts read no bytes from msgpack."""
    return {**msgspec.to_builtins(effect), "lane": [part.hex() for part in definition(lane)]}


async def settle(
    client: Client,
    key: bytes,
    session: str,
    seq: int,
    transitions: Sequence[Transition],
    keep: int,
    now_ms: int | None,
    spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
) -> list[Settled]:
    """Apply each transition whose token still holds its job; at most `keep` finished jobs stay in a queue."""
    groups, bodies = _accounts(transitions, spent) if spent else ([], [])
    last, count = b"", 0
    for transition in transitions:
        kind, body = _encoded(transition)
        if body is not None:
            bodies.append(body)
        token = transition.token
        group = kind + (token.to_bytes(7, "big") if 0 < token < 1 << 53 else NO_TOKEN)
        if group != last or count == MOST:
            if count:
                groups += (last, count.to_bytes(2, "big"))
            last, count = group, 0
        count += 1
    groups += (last, count.to_bytes(2, "big")) if count else ()
    ids = b"".join([transition.id for transition in transitions])
    args = ("" if now_ms is None else now_ms, session, seq, keep, b"".join(groups), ids, *bodies)
    answer: bytes = await client.script("settle", script("settle"), key, args)
    answers = [ANSWERS[each] for each in answer[: len(transitions)]]
    if len(answer) > len(transitions):
        for place, shut in _shut_gates(answer[len(transitions) :]):
            answers[place - 1] = replace(answers[place - 1], shut=shut)
    return answers


def _accounts(
    transitions: Sequence[Transition], spent: Mapping[bytes, Mapping[str, int]]
) -> tuple[list[bytes], list[bytes]]:
    """The group that says what jobs actually cost, and its body: by the places of their transitions."""
    places = [
        (place, {unit: min(cost, MOST_COST) for unit, cost in spent[transition.id].items()})
        for place, transition in enumerate(transitions, 1)
        if spent.get(transition.id)
    ]
    return ([b"$" + bytes(9)], [_pack(places)]) if places else ([], [])


async def save(client: Client, key: bytes, id: bytes, token: int, note: Note, now_ms: int | None) -> bool:
    """Write a note of a running job; False when the token is stale."""
    args = ("" if now_ms is None else now_ms, id, token, note.kind, note.name, note.body)
    return bool(await client.script("save", script("notes_save"), key, args))
