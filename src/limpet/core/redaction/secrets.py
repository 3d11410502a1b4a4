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
        texts = sorted({form for value in known for form in _forms(value)}, key=lambda text: (-len(text), text))[:MOST]
        self._long = [text for text in texts if len(text) > WHOLE]
        self._texts, self._whole = texts, _either(texts)

    def __bool__(self) -> bool:
        return self._whole is not None

    def out_of(self, text: str) -> str:
        """The text with a mask in place of each secret, and of what is left of one where the text was cut."""
        if self._whole is None:
            return text
        text = self._whole.sub(MASK, text)
        for secret in self._long:
            text = _without_part(text, secret)
        return self._begun.sub(MASK, text) if _is_cut(text) else text

    @cached_property
    def _begun(self) -> re.Pattern[str]:
        """What is left of a secret before the sign of a cut."""
        begun = {text[:end] for text in self._texts for end in range(SHORTEST, min(len(text), WHOLE + 1))}
        return re.compile(f"(?:{_any(sorted(begun, key=lambda text: (-len(text), text)))})(?=…|\\.\\.\\.)")

    def out_of_all(self, value: Any) -> Any:
        """The same for all that is inside a JSON value, keys of objects included; nothing was cut there."""
        if self._whole is None:
            return value
        return self._all(value, self._numbers)

    def out_of_texts(self, value: Any) -> Any:
        """The same, but numbers stay what they are."""
        return value if self._whole is None else self._all(value, frozenset())

    def _all(self, value: Any, numbers: frozenset[Scalar]) -> Any:
        if isinstance(value, str):
            return self.out_of(value)
        if isinstance(value, dict):
            return {self.out_of(key): self._all(each, numbers) for key, each in value.items()}
        if isinstance(value, list):
            return [self._all(each, numbers) for each in value]
        return MASK if not isinstance(value, bool) and value in numbers else value


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
    """A secret as it is written: bare, inside quotes of Python or JSON, in a URL, line by line."""
    if not isinstance(value, str):
        if _digits(value):
            yield str(value)
        return
    if len(value) < SHORTEST:
        return
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    for text in (value, value.strip(), *(line for line in lines if len(line) >= LINE)):
        if len(text) >= SHORTEST:
            for written in (text, repr(text)[1:-1], *_in_json(text)):
                yield written
                yield from _in_json(written)  # a message that quotes it, as a line of a JSON log
            yield quote(text.encode(errors="replace"), safe="")
            yield quote_plus(text.encode(errors="replace"))


def _in_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _either(texts: list[str]) -> re.Pattern[str] | None:
    return re.compile(_any(texts)) if texts else None


def _any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, texts))


def _is_cut(text: str) -> bool:
    return "…" in text or "..." in text


def _without_part(text: str, secret: str) -> str:
    """The text without a long beginning or a long end of a secret: as much of it as is there."""
    head, tail = secret[:WHOLE], secret[-WHOLE:]
    while (at := text.find(head)) >= 0:
        size = WHOLE
        while size < len(secret) and text[at : at + size + 1] == secret[: size + 1]:
            size += 1
        text = text[:at] + MASK + text[at + size :]
    while (at := text.find(tail)) >= 0:
        size, end = WHOLE, at + WHOLE
        while size < len(secret) and text[max(0, end - size - 1) : end] == secret[-size - 1 :]:
            size += 1
        text = text[: end - size] + MASK + text[end:]
    return text
