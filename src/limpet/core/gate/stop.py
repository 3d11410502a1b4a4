"""A gate that is stopped as a whole: an operator paused it, or a provider pushed back."""

from __future__ import annotations

from msgspec.structs import replace

from limpet.core.gate.record import Gate


def is_stopped(gate: Gate, now_ms: int) -> bool:
    """Whether the gate is paused or held."""
    return gate.paused is not None or gate.held_until_ms > now_ms


def stop_opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When it is no longer held; None when only an operator can resume it."""
    return None if gate.paused is not None else max(now_ms, gate.held_until_ms)


def hold(gate: Gate, until_ms: int) -> Gate:
    """Admit no job before `until_ms`; a longer hold stays."""
    return replace(gate, held_until_ms=max(gate.held_until_ms, until_ms))
