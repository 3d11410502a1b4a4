"""Decides what the key of a limit is for one job: text with the job's own arguments filled in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from string import Formatter
from typing import Final
from uuid import UUID

from limpet.core.errors import InvalidArguments, InvalidTask
from limpet.core.flows.refs import Refers
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.storable import is_storable
from limpet.core.text.wildcard import expression_of

MAX_KEY_CHARS: Final = 256  # keys are copied into lanes, indexes and pages
PLACES: Final = ("task", "queue", "tenant")  # what a template may name beside parameters
_FIELD: Final = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\[[^\[\]]+\])*)")
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[([^\[\]]+)\]")
_SCALARS: Final = (str, int, float, Decimal, UUID, date)


@dataclass(frozen=True)
class _Field:
    """One "{param.attr[key]}" of a template."""

    name: str
    steps: tuple[tuple[str, bool], ...]  # (attribute or key, is a key)
    text: str


class Template:
    """Text with "{param}", "{param.attr}", "{param[key]}", "{task}", "{queue}" or "{tenant}" in it.

    >>> Template("customer:{order.customer}").fill({"order": {"customer": 42}})
    'customer:42'
    """

    __slots__ = ("_one", "_parts", "constant", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise InvalidTask(f"{text!r} is not a key", fix='write text such as "smtp" or "customer:{customer}"')
        self.text = text
        self._parts: list[tuple[str, _Field | None]] = _parse(text)
        # True when every job of a task gets the same text.
        self.constant = all(place is None or place.name == "task" for _, place in self._parts)
        # "customer:{customer}" is the common case, and on the path of every enqueue.
        last = self._parts[-1][1]
        single = len(self._parts) == 1 and last is not None and not last.steps
        self._one = (self._parts[0][0], last.name) if single and last is not None else None

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters and places it reads."""
        return tuple(place.name for _, place in self._parts if place is not None)

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The values it reads: a name, then attributes and keys."""
        places = [place for _, place in self._parts if place is not None]
        return tuple((place.name, *(name for name, _ in place.steps)) for place in places)

    def shape(self, task: str) -> str:
        """The text with what differs from job to job left out: templates that may fill the same keys look alike."""
        return "".join(
            literal + ("" if place is None else task if place.name == "task" else "{}")
            for literal, place in self._parts
        )

    def check(self, parameters: Collection[str]) -> None:
        """Refuse names that are neither parameters nor places."""
        if "task" in self.names and "task" in parameters:
            raise InvalidTask(
                f"the key {self.text!r} names {{task}}, which is both the task itself and a parameter of it",
                fix="call the parameter something else",
            )
        for name in self.names:
            if name not in parameters and name not in PLACES:
                raise InvalidTask(
                    f"the key {self.text!r} names {name!r}, which is not a parameter of the task",
                    fix=did_you_mean(name, [*parameters, *PLACES]),
                )

    def fill(self, values: Mapping[str, object]) -> str:
        """The text for one call; `values` holds the arguments and the places."""
        if self._one is not None:
            literal, name = self._one
            value = values.get(name)
            if type(value) is str and len(value) + len(literal) <= MAX_KEY_CHARS and value.isprintable():
                return literal + value
        filled = "".join(
            literal + ("" if place is None else self._read(place, values)) for literal, place in self._parts
        )
        return checked_key(filled, what=f"the key {self.text!r}")

    def made(self, text: str) -> bool:
        """Whether some call could have filled it to this text."""
        literals = [literal for literal, _ in self._parts]
        if self._parts and self._parts[-1][1] is not None:
            literals.append("")
        return re.fullmatch(expression_of(literals), text, re.DOTALL) is not None

    def _read(self, place: _Field, values: Mapping[str, object]) -> str:
        if place.name not in values:
            raise InvalidArguments(
                f"the key {self.text!r} needs {place.name!r}, which was not passed", fix=f"pass {place.name}="
            )
        value = values[place.name]
        if isinstance(value, Refers):
            raise InvalidArguments(
                f"the key {self.text!r} reads {place.text!r}, which is another job's result and not known yet",
                fix=f"pass what {place.text!r} names as an argument of its own",
            )
        for name, is_key in place.steps:
            value = self._step(value, name, is_key, place)
        if isinstance(value, Enum):
            value = value.value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _SCALARS):
            return str(value)
        raise InvalidArguments(
            f"the key {self.text!r} reads {place.text!r}, which is a {type(value).__qualname__} and names nothing",
            fix=f"let it read a text or a number, such as {{{place.text}.id}}",
        )

    def _step(self, value: object, name: str, is_key: bool, place: _Field) -> object:
        # By-name enqueue passes JSON where code passes objects, so attributes read keys as well.
        try:
            if isinstance(value, Mapping):
                return value[name] if name in value else value[int(name)]
            if is_key and isinstance(value, Sequence) and not isinstance(value, str):
                return value[int(name)]
            if not is_key:
                found: object = getattr(value, name)
                return found
        except (KeyError, IndexError, AttributeError, ValueError):
            pass
        raise InvalidArguments(
            f"the key {self.text!r} reads {place.text!r}, but {type(value).__qualname__} has no {name!r}",
            fix="pass a value that has it, or change the template",
        )


def _parse(text: str) -> list[tuple[str, _Field | None]]:
    fix = (
        'write "{param}", "{param.attr}", "{param[key]}", "{task}", "{queue}" or "{tenant}"; a brace itself is doubled'
    )
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidTask(f"the key {text!r} cannot be read: {error}", fix=fix) from error
    parts: list[tuple[str, _Field | None]] = []
    for literal, name, spec, conversion in found:
        if name is None:
            parts.append((literal, None))
            continue
        match = _FIELD.fullmatch(name)
        if match is None or spec or conversion:
            raise InvalidTask(f"the key {text!r} has the field {{{name}}}, which cannot be read", fix=fix)
        steps = tuple((attr or key, bool(key)) for attr, key in _STEP.findall(match[2]))
        parts.append((literal, _Field(match[1], steps, name)))
    return parts


def checked_key(text: str, *, what: str) -> str:
    """`text` when it is short enough to be a key, and every engine can keep it."""
    if not is_storable(text):
        raise InvalidArguments(
            f"{what} holds {text!r:.80}, and a NUL or half a character cannot be stored",
            fix="decode it properly, or use a hash of the value",
        )
    if len(text) > MAX_KEY_CHARS:
        raise InvalidArguments(
            f"{what} is {len(text)} characters long",
            fix=f"use at most {MAX_KEY_CHARS}, for example a hash of the value",
        )
    return text
