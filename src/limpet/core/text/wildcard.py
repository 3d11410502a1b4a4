"""Decides which texts a pattern means in which only * is special, in a time that no pattern can draw out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Fits = Callable[[str], bool]


def whole_fits(pattern: str) -> Fits:
    """Whether the pattern is all of a text.

    >>> whole_fits("send_*_mail")("send_welcome_mail"), whole_fits("send_*")("resend_all")
    (True, False)
    """
    if "*" not in pattern:
        return lambda text: text == pattern
    first, *middle, last = map(re.escape, pattern.split("*"))
    made = re.compile(f"{first}{_in_order(middle)}.*{last}", re.DOTALL)
    return lambda text: made.fullmatch(text) is not None


def part_fits(pattern: str) -> Fits:
    """Whether the pattern is a part of a text; upper and lower case of ASCII letters are the same.

    >>> part_fits("TIME*out")("the timed out one")
    True
    """
    made = re.compile(_in_order(map(re.escape, pattern.split("*"))), re.DOTALL | re.IGNORECASE | re.ASCII)
    return lambda text: bool(text) and made.match(text) is not None


def _in_order(parts: Iterable[str]) -> str:
    """Parts that follow each other, each as soon as it may: nothing is tried twice, however many there are."""
    return "".join(f"(?>.*?{part})" for part in parts)
