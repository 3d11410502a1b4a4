"""Decides which regular expressions a contract may hold, and on how long a text each is tried.

A pattern that can match a text in many ways takes time that grows with the number of ways: `^(a+)+$` needs 0.6 s for
25 characters. What is let through here can only try the places where its repetitions begin and end.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from limpet.core.errors import InvalidOption

PATTERN_CHARS: Final = 500
_TRIES: Final = 10_000_000  # a tenth of a second
_MOST_CHARS: Final = 1 << 20
_BOUNDED: Final = 64  # a repetition with a smaller bound does not make long texts expensive
_COUNT: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_SHUNNED: Final = ("(?=", "(?!", "(?<", "(?P=", "(?(", "(?>")
_FIX: Final = "write a simpler one, or an array of short texts"


@cache
def most_chars(pattern: str) -> int:
    """The longest text that the pattern is tried on; a pattern without a bound on its time is refused."""
    if len(pattern) > PATTERN_CHARS:
        raise InvalidOption(
            f"a pattern has {len(pattern):,} characters, over the limit of {PATTERN_CHARS}", fix="split the property"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(f"the pattern {pattern!r:.80} is not one: {error}", fix="correct it") from error
    repetitions = _Reading(pattern).open_repetitions()
    degree = repetitions + (not pattern.startswith("^"))
    return _MOST_CHARS if degree <= 1 else int(_TRIES ** (1 / degree))


class _Reading:
    """One way through a pattern; of each group it is known whether what is inside can match in several ways."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._open = 0
        self._groups = [False]  # of the groups that are open here, the outermost first: is anything inside them varied?
        self._atom_varied = False  # the same of what was read last

    def open_repetitions(self) -> int:
        """How many repetitions have no small bound."""
        while self._at < len(self._pattern):
            self._step()
        return self._open

    def _step(self) -> None:
        pattern, at = self._pattern, self._at
        char = pattern[at]
        self._at += 1
        if char == "\\":
            if pattern[at + 1 : at + 2] in set("123456789"):
                raise self._refusal("refers back to a part of its own")
            self._at += 1
            self._atom_varied = False
        elif char == "[":
            self._at = _end_of_class(pattern, at)
            self._atom_varied = False
        elif char == "(":
            if pattern.startswith(_SHUNNED, at):
                raise self._refusal("looks ahead or behind")
            self._groups.append(False)
        elif char == ")":
            self._atom_varied = self._groups.pop()
            self._groups[-1] |= self._atom_varied
        elif char == "|":
            self._groups[-1] = True
        elif char in "*+?" or (char == "{" and _COUNT.match(pattern, at)):
            self._repeat(char, at)
        else:
            self._atom_varied = False

    def _repeat(self, char: str, at: int) -> None:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char, (0, 0))
        if char == "{" and (found := _COUNT.match(self._pattern, at)) is not None:
            self._at = found.end()
            least = int(found[1] or 0)
            most = least if not found[2] else int(found[3]) if found[3] else None
        if self._atom_varied and most != 1:
            raise self._refusal("repeats a part that repeats or has alternatives inside")
        if most is None or most > _BOUNDED:
            self._open += 1
        if least != most:
            self._groups[-1] = True
        if self._pattern[self._at : self._at + 1] in ("?", "+"):
            self._at += 1  # lazy or possessive
        self._atom_varied = False

    def _refusal(self, what: str) -> InvalidOption:
        return InvalidOption(f"the pattern {self._pattern!r:.80} {what}: its time has no bound", fix=_FIX)


def _end_of_class(pattern: str, at: int) -> int:
    """Behind the bracket that closes the class which begins at `at`."""
    at += 1
    if pattern[at : at + 1] == "^":
        at += 1
    if pattern[at : at + 1] == "]":
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1
