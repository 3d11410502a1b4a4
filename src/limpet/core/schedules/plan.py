"""Decides which ticks of a schedule fire now, which missed ones are dropped, and when to look again."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from limpet.core.schedules.policy import TickPolicy
from limpet.core.schedules.rule import Rule
from limpet.core.text.duration import iso

# A tick that fires within this time is on time, whatever catch_up says: a worker may have been restarting, with a
# shutdown of 25 s, or found dead after 20 s. Beyond it the tick was missed.
ON_TIME_MS: Final = 60_000
MOST_COUNTED: Final = 1_000  # dropped ticks that are counted one by one; beyond that the number is a lower bound


class Firing(Struct, frozen=True):
    """One tick that fires now."""

    id: str  # unique and the same for everyone who plans this tick
    job: bytes  # the id of its job: enqueueing it again is enqueueing the same job
    tick_at_ms: int  # the instant that the schedule names
    due_at_ms: int  # the same with jitter
    late: bool  # it was missed and is being caught up
    expires_at_ms: int | None = None  # not to be started from then on


class Plan(Struct, frozen=True):
    """What to do about a schedule at one instant.

    Each tick that fires is one atomic change: it is enqueued if and only if the stored last tick, which moves to it in
    the same write, was older. Of two who carry out the same plan, the second finds its ticks decided.
    """

    decided_at_ms: int | None = None  # the newest tick that is decided, fired or dropped; None = nothing to write
    fire: tuple[Firing, ...] = ()  # oldest first
    dropped: int = 0  # older ticks that do not fire; from MOST_COUNTED on there may be more
    dropped_at_ms: int | None = None  # the newest of them
    dropped_why: Literal["missed", "expired"] = "missed"  # what that one was
    wake_at_ms: int | None = None  # when the next tick is due; None = never


def plan(name: str, rule: Rule, policy: TickPolicy, last_at_ms: int, now_ms: int) -> Plan:
    """What to do at `now_ms` about the ticks after `last_at_ms`, the newest that was decided before.

    Ticks that are on time fire. Of the missed ones the newest fire, as many as `policy.catch_up` says, unless they
    have expired; the rest is dropped.
    """
    newest = rule.latest(last_at_ms, now_ms)
    if newest is not None and due_at_ms(name, rule, policy, newest) > now_ms:
        newest = rule.latest(last_at_ms, newest - 1)  # jitter never reaches the next tick, so only one can wait for it
    if newest is None:
        return Plan(wake_at_ms=_next_due(name, rule, policy, last_at_ms))
    fire: list[Firing] = []
    late = 0
    left: int | None = newest  # the newest tick that does not fire
    expired = False
    while left is not None:
        firing = _firing(name, rule, policy, left, now_ms)
        expired = firing.expires_at_ms is not None and firing.expires_at_ms <= now_ms
        late += firing.late
        if expired or late > policy.catch_up:
            break
        fire.append(firing)
        left = rule.latest(last_at_ms, left - 1)
    return Plan(
        decided_at_ms=newest,
        fire=tuple(reversed(fire)),
        dropped=0 if left is None else len(rule.between(last_at_ms, left, MOST_COUNTED)),
        dropped_at_ms=left,
        dropped_why="expired" if expired else "missed",
        wake_at_ms=_next_due(name, rule, policy, newest),
    )


def due_at_ms(name: str, rule: Rule, policy: TickPolicy, tick_at_ms: int) -> int:
    """When a tick fires: spread by jitter, the same for everyone, and always before the next tick."""
    if not policy.jitter_ms:
        return tick_at_ms
    following = rule.after(tick_at_ms)
    room_ms = policy.jitter_ms if following is None else min(policy.jitter_ms, following - tick_at_ms - 1)
    return tick_at_ms + int.from_bytes(_digest("jitter", name, tick_at_ms)[:8], "big") % (room_ms + 1)


def tick_id(name: str, tick_at_ms: int) -> str:
    """What one tick of one schedule is called, everywhere and for ever.

    >>> tick_id("digest", 0)
    'digest@1970-01-01T00:00:00.000Z'
    """
    return f"{name}@{iso(tick_at_ms)}"


def tick_job(name: str, tick_at_ms: int) -> bytes:
    """The id of a tick's job: a uuid7 of the tick's instant whose noise is a hash of its name."""
    noise = int.from_bytes(_digest("job", name, tick_at_ms), "big")
    value = tick_at_ms << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    return value.to_bytes(16, "big")


def _firing(name: str, rule: Rule, policy: TickPolicy, tick_at_ms: int, now_ms: int) -> Firing:
    due = due_at_ms(name, rule, policy, tick_at_ms)
    return Firing(
        id=tick_id(name, tick_at_ms),
        job=tick_job(name, tick_at_ms),
        tick_at_ms=tick_at_ms,
        due_at_ms=due,
        late=now_ms - due > ON_TIME_MS,
        expires_at_ms=None if policy.expires_ms is None else due + policy.expires_ms,
    )


def _next_due(name: str, rule: Rule, policy: TickPolicy, last_at_ms: int) -> int | None:
    following = rule.after(last_at_ms)
    return None if following is None else due_at_ms(name, rule, policy, following)


def _digest(what: str, name: str, tick_at_ms: int) -> bytes:
    return blake2b(f"{what}\0{tick_at_ms}\0{name}".encode(), digest_size=16).digest()
