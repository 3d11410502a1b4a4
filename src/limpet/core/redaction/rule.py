"""Decides what a redaction rule means: which keys and paths of a job's content no face may show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.text.wildcard import expression_of

# What stands in the place of a value. No program writes it by accident, so that one that comes back is recognised.
MASK: Final = "•••redacted•••"
MASK_JSON: Final = f'"{MASK}"'.encode()

PLACES: Final = ("args", "result", "meta", "steps", "checkpoint", "events")
_OBJECTS: Final = ("args", "meta")  # these are always objects: a rule for all of one hides each value of it

MOST_RULES: Final = 200  # that one list may hold: each is asked about every key
MOST_CHARS: Final = 200

Path = tuple[str, ...]  # a place, then keys; items of a list have the path of the list

_FIX: Final = 'write a key ("password"), or a path: "args.card.number", "card.number", "*.token", "result"'
_PART: Final = re.compile(r"(?:\\.|[^.\\\[])+")  # \. is a dot in a key, \* a star


class Rule(Struct, frozen=True):
    """One rule. Without a place it is for keys in all places, at any depth: `card.number` ends like that."""

    text: str
    place: str | None
    keys: tuple[str, ...]  # patterns

    def fits(self, path: Path) -> bool:
        """Whether the value at this path is hidden; not those below it."""
        place, keys = path[0], path[1:]
        if self.place is None:
            if not 0 < len(self.keys) <= len(keys):
                return False
            keys = keys[-len(self.keys) :]
        elif place != self.place or len(keys) != len(self.keys):
            return False
        return all(_pattern(wanted).fullmatch(key) is not None for wanted, key in zip(self.keys, keys, strict=True))

    def may_fit_below(self, path: Path) -> bool:
        """Whether a value below this path could be hidden."""
        if self.place is None:
            return True
        begun = self.keys[: len(path) - 1]
        return path[0] == self.place and len(self.keys) >= len(path) and Rule("", self.place, begun).fits(path)


def parse_rule(text: str) -> Rule:
    """The rule that `text` means; letters are compared without their case, and * stands for any of them.

    >>> parse_rule("password").place is None
    True
    >>> parse_rule("args.card.number").keys
    ('card', 'number')
    """
    if not isinstance(text, str) or not text or len(text) > MOST_CHARS:
        raise InvalidOption(f"redact holds {text!r:.80}, which is no rule of 1 to {MOST_CHARS} characters", fix=_FIX)
    parts = _PART.findall(text)
    if ".".join(parts) != text or parts[0] == "$" or not text.isprintable():
        raise InvalidOption(f"redact holds {text!r:.80}, which cannot be read", fix=f"{_FIX}; lists need no index")
    place = parts[0].lower() if parts[0].lower() in PLACES else None
    keys = tuple(parts if place is None else parts[1:])
    if place in _OBJECTS and not keys:
        keys = ("*",)
    return Rule(text, place, keys)


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of `redact=[...]`, each once."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidOption(f"redact is a list of rules, got {texts!r:.80}", fix='redact=["password", "args.card"]')
    found = tuple(map(parse_rule, dict.fromkeys(texts)))
    if len(found) > MOST_RULES:
        raise InvalidOption(
            f"redact holds {len(found)} rules, and {MOST_RULES} are the most", fix='use patterns: "*token*"'
        )
    return found


def literally(key: str) -> str:
    """The pattern for this key alone, as a part of a rule."""
    return re.sub(r"[\\.*\[]", lambda found: f"\\{found[0]}", key)


class Rules:
    """Rules together, asked about paths."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(dict.fromkeys(rules))
        self._by_last: dict[str, tuple[Rule, ...]] = {}  # by a key, those whose last part fits it
        self._by_place: Mapping[str, bool] = {rule.place: True for rule in self.rules if rule.place and not rule.keys}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def hides(self, path: Path) -> bool:
        """Whether the value at exactly this path is hidden."""
        if len(path) == 1:
            return path[0] in self._by_place
        last = path[-1]
        near = self._by_last.get(last)
        if near is None:
            near = tuple(rule for rule in self.rules if rule.keys and _pattern(rule.keys[-1]).fullmatch(last))
            if len(self._by_last) < 10_000:  # keys may be data
                self._by_last[last] = near
        return any(rule.fits(path) for rule in near)

    def covers(self, path: Path) -> Rule | None:
        """The rule that hides the value at this path, or one that it is a part of."""
        for end in range(1, len(path) + 1):
            if self.hides(path[:end]):
                return next(rule for rule in self.rules if rule.fits(path[:end]))
        return None

    def reach_below(self, path: Path) -> bool:
        """Whether something inside the value at this path could be hidden."""
        return any(rule.may_fit_below(path) for rule in self.rules)


@lru_cache(4_096)
def _pattern(text: str) -> re.Pattern[str]:
    literals = [""]
    for each in re.split(r"(\\.|\*)", text):
        if each == "*":
            literals.append("")
        else:
            literals[-1] += each[1:] if each[:1] == "\\" else each
    return re.compile(expression_of(literals), re.IGNORECASE | re.DOTALL)


def holds_mask(value: Any) -> bool:
    """Whether a mask is somewhere in it: what was shown with one must not be stored in place of what it hides."""
    if isinstance(value, str):
        return MASK in value
    if isinstance(value, Mapping):
        return any(holds_mask(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(holds_mask, value))
