"""Decides what may be the name of a task, a queue, a tag or a capability, and which one was meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from limpet.core.errors import InvalidOption

MAX_NAME_CHARS: Final = 200
_NAMED: Final = 30  # in one sentence: there may be a limit for each of many customers


def checked_name(value: str, *, what: str) -> str:
    """A task, queue, tag or capability: short printable text without spaces."""
    if isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS and value.isprintable() and " " not in value:
        return value
    raise InvalidOption(f"{what}={value!r:.80} is not a name", fix=f"use 1 to {MAX_NAME_CHARS} letters without spaces")


def checked_names(values: Iterable[str], *, what: str) -> tuple[str, ...]:
    """Several names, each once, in order."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidOption(f"{what}={values!r} is not a list", fix=f"pass {what}=[...]")
    return tuple(dict.fromkeys(checked_name(value, what=what) for value in values))


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that was most likely meant, if one is near."""
    return next(iter(get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A sentence for a refusal: the nearest known name, or all of them, or of very many the first.

    >>> did_you_mean("mial", ["mail", "exports"])
    "did you mean 'mail'?"
    """
    if (close := nearest(name, known)) is not None:
        return f"did you mean {close!r}?"
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return f"known: {', '.join(sorted(known)[:_NAMED])}{more}" if known else "there are none"
