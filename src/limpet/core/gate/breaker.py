"""Opens a gate's breaker when too much fails behind it, and closes it when a probe succeeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.gate.record import FOREVER_MS, UNLIMITED, BreakerRule, Charge, Gate, GateRule, Verdict

OPEN, COUNTING, CLOSED = range(3)  # the ranks of breakers in a list


class WorstFirst(Struct, frozen=True):
    """A page of all breakers, and of other gates that are open as one: what is open comes first, then by key."""

    limit: int = 100
    after: tuple[int, str] = (OPEN, "")  # the place of the last one on the page before (rank_key)

    def ranges(self) -> Iterator[tuple[int, str]]:
        """The ranks that are left, each with the key behind which the page begins."""
        first, key = self.after
        for place in range(first, CLOSED + 1):
            yield place, key if place == first else ""


# Of the half-window before the current one, both in one number below 2^53: its calls, and 20 bits of its failures.
_MOST_CALLS: Final = (1 << 32) - 1
_MOST_FAILURES: Final = (1 << 20) - 1


def is_open(gate: Gate, now_ms: int) -> bool:
    """Whether no job passes: it is open, or its probe is under way."""
    return gate.open_until_ms > now_ms or (gate.open_until_ms > 0 and gate.probe_token != 0)


def breaker_room(gate: Gate, now_ms: int) -> int:
    """All may pass while it is closed, one as a probe when it is half-open."""
    return UNLIMITED if not gate.open_until_ms else 0 if is_open(gate, now_ms) else 1


def breaker_opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When it lets a probe through; None when it waits for the end of one, or for an operator."""
    if not gate.open_until_ms:
        return now_ms
    return None if gate.probe_token or gate.open_until_ms >= FOREVER_MS else gate.open_until_ms


def learn(gate: Gate, verdict: Verdict, now_ms: int) -> Gate:
    """Count one outcome; open the breaker when its rule says so. Costs no write while all goes well."""
    rule = gate.rule.breaker
    if rule is None or verdict == "neutral" or gate.open_until_ms:
        return gate
    if rule.rate is not None:
        return _learn_rate(gate, rule, rule.rate, failed=verdict == "failed", now_ms=now_ms)
    if verdict == "ok":
        return replace(gate, failed_at_ms=()) if gate.failed_at_ms else gate
    recent = (
        tuple(at for at in gate.failed_at_ms if at > now_ms - rule.within_ms)[-(rule.failures - 1) :]
        if rule.failures > 1
        else ()
    )
    recent = (*recent, now_ms)
    if len(recent) >= rule.failures:
        return trip(gate, now_ms + rule.probe_after_ms)
    return replace(gate, failed_at_ms=recent)


def _learn_rate(gate: Gate, rule: BreakerRule, rate: float, *, failed: bool, now_ms: int) -> Gate:
    # Two half-windows: bounded memory, and a failure is forgotten after at most one whole window.
    half = max(1, rule.within_ms // 2)
    number = now_ms // half
    window, calls, failures, before = gate.calls
    if number > window + 1:
        calls = failures = before = 0
    elif number == window + 1:
        before = (min(calls, _MOST_CALLS) << 20) | min(failures, _MOST_FAILURES)
        calls = failures = 0
    calls, failures = calls + 1, failures + failed
    all_calls, all_failures = calls + (before >> 20), failures + (before & _MOST_FAILURES)
    if failed and all_calls >= rule.min_calls and all_failures >= rate * all_calls:
        return trip(gate, now_ms + rule.probe_after_ms)
    return replace(gate, calls=(number, calls, failures, before))


def counted(gate: Gate, now_ms: int) -> tuple[int, int | None]:
    """What a breaker has counted in its window: failures, and calls if it goes by their share."""
    rule = gate.rule.breaker
    if rule is None:
        return 0, None
    if rule.rate is None:
        return sum(at > now_ms - rule.within_ms for at in gate.failed_at_ms), None
    window, calls, failures, before = gate.calls
    later = now_ms // max(1, rule.within_ms // 2) - window
    if later > 1:
        return 0, 0
    if later == 1:
        return failures, calls
    return failures + (before & _MOST_FAILURES), calls + (before >> 20)


def remembers(gate: Gate, now_ms: int) -> bool:
    """True while what a breaker has counted can still open it."""
    rule = gate.rule.breaker
    if rule is None:
        return False
    if rule.rate is not None:
        return gate.calls[1] > 0 and now_ms // max(1, rule.within_ms // 2) <= gate.calls[0] + 1
    return any(at > now_ms - rule.within_ms for at in gate.failed_at_ms)


def under_own(gate: Gate | None, key: str, own: Gate | None) -> Gate | None:
    """The breaker of a key with the numbers of its task's own; None when neither is there.

    It has a record only while it is open or has counted something. An operator's numbers stay.
    """
    if own is None or own.rule.breaker is None:
        return gate
    if gate is None:
        return Gate(GateRule(key, breaker=own.rule.breaker))
    if not gate.declared or gate.rule.breaker == own.rule.breaker:
        return gate
    return replace(gate, rule=replace(gate.rule, breaker=own.rule.breaker))


def by_key(charges: Iterable[Charge], own: str, key: str) -> list[Charge]:
    """The charges of a job under a breaker by key: what it does counts there, and not at its task's own breaker.

    But a probe, of either of the two, teaches the gate that let it through, and no other.
    """
    probes, others, ruled = list[Charge](), list[Charge](), False
    for each in charges:
        if each.gate not in (own, key):
            others.append(each)
        elif each.probe:
            probes.append(replace(each, own=own) if each.gate == key else each)
        ruled = ruled or each.gate in (own, key)
    return [*others, *(probes or ([Charge(key, own=own)] if ruled else []))]


def rank(gate: Gate) -> int | None:
    """Where a list of breakers has this gate, worst first; None when it is none, and not open as one."""
    if gate.open_until_ms:
        return OPEN
    if not gate.key.startswith("breaker:"):
        return None
    return COUNTING if gate.failed_at_ms or gate.calls[1] else CLOSED


def rank_key(gate: Gate) -> tuple[int, str]:
    """Its place in such a list."""
    return (CLOSED if (place := rank(gate)) is None else place), gate.key


def end_probe(gate: Gate, verdict: Verdict, now_ms: int) -> Gate:
    """The gate after its probe has ended: a success closes it, a failure opens it for another cooldown."""
    if verdict == "ok":
        return reset(gate)
    if verdict == "failed":
        return trip(gate, now_ms + (gate.rule.breaker or BreakerRule()).cooldown_ms)
    return replace(gate, probe_token=0)


def trip(gate: Gate, until_ms: int) -> Gate:
    """Open the breaker until `until_ms`, when one probe is let through."""
    return replace(
        gate,
        open_until_ms=until_ms,
        probe_token=0,
        failed_at_ms=(),
        calls=(0, 0, 0, 0),
        opened=gate.opened + 1,
        by_hand=False,
    )


def cut_off(gate: Gate, until_ms: int, token: int, now_ms: int) -> Gate:
    """The gate after the job under `token` was told that there is no money left: open, until one job probes it.

    Jobs that were under way with it say nothing new, and prolong nothing.
    """
    if token == gate.probe_token or not (gate.probe_token or gate.open_until_ms > now_ms):
        return trip(gate, until_ms)
    return gate


def reset(gate: Gate) -> Gate:
    """Close the breaker and forget its failures."""
    return replace(gate, open_until_ms=0, probe_token=0, failed_at_ms=(), calls=(0, 0, 0, 0), by_hand=False)
