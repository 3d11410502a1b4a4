"""Decides how instants are said in the reasons why a job is not running."""

from __future__ import annotations

from limpet.core.gate import FOREVER_MS
from limpet.core.text.duration import iso, text_of_ms


def when_words(at_ms: int, now_ms: int) -> str:
    """An instant to come, in a sentence."""
    if at_ms <= now_ms:
        return "now"
    if at_ms >= FOREVER_MS:
        return "when someone starts it"
    return f"in {text_of_ms(at_ms - now_ms)} ({iso(at_ms)})"


def ago(at_ms: int, now_ms: int) -> str:
    """An instant that has passed, in a sentence."""
    return f"{text_of_ms(max(0, now_ms - at_ms))} ago"


def when_text(at_ms: int, now_ms: int) -> str:
    """An instant to come, for tables; nothing for one that never comes."""
    return "" if at_ms >= FOREVER_MS else "now" if at_ms <= now_ms else f"in {text_of_ms(at_ms - now_ms)}"
