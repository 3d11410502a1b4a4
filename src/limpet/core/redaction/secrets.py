"""Finds a job's own secret values in text: in errors, tracebacks, messages, keys, wherever they have got to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, quote_plus

from limpet.core.redaction.rule import MASK

SHORTEST: Final = 4  # characters: a shorter one stands in any text by chance
SHORTEST_NUMBER: Final = 6  # digits: years and ports are no secrets
LINE: Final = 8  # characters of one line of a secret that has several, such as a key in PEM
WHOLE: Final = 24  # characters: of a longer secret this much of its beginning or of its end is one, too
MOST: Final = 1_000  # texts that are looked for, longest first

Scalar = str | int | float


class Secrets:
    """The hidden values of one job.

    >>> Secrets(["hunter2"]).out_of("no user 'hunter2'")
    "no user '•••redacted•••'"
    """

    def __init__(self, values: Iterable[Scalar] = ()) -> None:
        known = frozenset(values)
        self._numbers = frozenset(each for each in known if not isinstance(each, str) and _digits(each))
        whole = {form for value in known for form in _forms(value)}
        lines = {form for value in known for line in _lines(value) for form in _forms(line)} - whole
        self._groups = [_Texts(texts) for texts in (whole, lines) if texts]  # a line is a part of a whole one

    def __bool__(self) -> bool:
        return bool(self._groups)

    def out_of(self, text: str) -> str:
        """The text with a mask in place of each secret, and of what is left of one where the text was cut."""
        for texts in self._groups:
            text = texts.out_of(text)
        return self._begun.sub(MASK, text) if self._groups and _is_cut(text) else text

    @cached_property
    def _begun(self) -> re.Pattern[str]:
        """A few letters of a secret before the sign of a cut."""
        texts = [text for group in self._groups for text in group.texts]
        begun = {text[:end] for text in texts for end in range(SHORTEST, min(len(text), WHOLE + 1))}
        return re.compile(f"(?:{_any(_longest_first(begun))})(?=…|\\.\\.\\.)")

    def out_of_all(self, value: Any) -> Any:
        """The same for all that is inside a JSON value, keys of objects included; nothing was cut there."""
        try:
            return self._all(value, self._numbers) if self._groups else value
        except RecursionError:  # it is nested too deeply to be walked
            return MASK

    def out_of_texts(self, value: Any) -> Any:
        """The same, but numbers stay what they are."""
        return self._all(value, frozenset()) if self._groups else value

    def _all(self, value: Any, numbers: frozenset[Scalar]) -> Any:
        if isinstance(value, str):
            return self.out_of(value)
        if isinstance(value, dict):
            return {self.out_of(key): self._all(each, numbers) for key, each in value.items()}
        if isinstance(value, list):
            return [self._all(each, numbers) for each in value]
        return MASK if not isinstance(value, bool) and value in numbers else value


class _Texts:
    """Texts that are looked for together: whole ones first, then long beginnings and ends of those that were cut."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = _longest_first(texts)[:MOST]
        self._whole = re.compile(_any(self.texts))
        self._heads: dict[str, list[str]] = {}  # secrets may begin alike: the one that goes furthest counts
        self._tails: dict[str, list[str]] = {}
        for text in self.texts:
            if len(text) > WHOLE:
                self._heads.setdefault(text[:WHOLE], []).append(text)
                self._tails.setdefault(text[-WHOLE:], []).append(text)

    def out_of(self, text: str) -> str:
        """The text with masks."""
        text = self._whole.sub(MASK, text)
        for head, secrets in self._heads.items():
            while (at := text.find(head)) >= 0:
                size = max(_alike(text[at:], secret) for secret in secrets)
                text = text[:at] + MASK + text[at + size :]
        for tail, secrets in self._tails.items():
            while (at := text.find(tail)) >= 0:
                before = text[: at + WHOLE][::-1]
                size = max(_alike(before, secret[::-1]) for secret in secrets)
                text = text[: at + WHOLE - size] + MASK + text[at + WHOLE :]
        return text


def _alike(one: str, other: str) -> int:
    """How many letters they begin with alike."""
    unlike = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unlike, min(len(one), len(other)))


def scalars_in(value: Any) -> Iterator[Scalar]:
    """The texts and numbers inside a value that is hidden."""
    if isinstance(value, dict):
        for each in value.values():
            yield from scalars_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from scalars_in(each)
    elif isinstance(value, Scalar) and not isinstance(value, bool) and value != MASK:
        yield value


def _digits(value: object) -> bool:
    return len(str(value)) >= SHORTEST_NUMBER


def _forms(value: Scalar) -> Iterator[str]:
    """A secret as it is written: bare, inside quotes of Python or JSON, in a URL."""
    if not isinstance(value, str):
        if _digits(value):
            yield str(value)
        return
    for text in (value, value.strip()):
        if len(text) >= SHORTEST:
            for written in (text, repr(text)[1:-1], *_in_json(text)):
                yield written
                yield from _in_json(written)  # a message that quotes it, as a line of a JSON log
            yield quote(text.encode(errors="replace"), safe="")
            yield quote_plus(text.encode(errors="replace"))


def _lines(value: Scalar) -> list[str]:
    """The lines of a secret that has several, but for short ones."""
    found = value.splitlines() if isinstance(value, str) and "\n" in value else []
    return [line.strip() for line in found if len(line.strip()) >= LINE]


def _in_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))


def _any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, texts))


def _is_cut(text: str) -> bool:
    return "…" in text or "..." in text
