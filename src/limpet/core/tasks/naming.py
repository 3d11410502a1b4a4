"""Decides what may be the name of a task, a queue, a tag or a capability, and which one was meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from limpet.core.errors import InvalidOption

MAX_NAME_CHARS: Final = 200
_SHORT: Final = 3  # letters: a slip in fewer makes any other word; and a part of fewer says too little
_LONG: Final = 7  # letters: two slips in fewer do
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
    """The known name that was most likely meant: a slip of the keys away, or the same with a part left out.

    >>> nearest("prioirty", ["priority", "queue"]), nearest("tops", ["stats", "jobs"])
    ('priority', None)
    """
    typed = _plain(name)
    slips = [(slips, each) for each in sorted(known) if (slips := _slips(typed, _plain(each))) is not None]
    if slips:
        return min(slips)[1]
    longer = [each for each in known if _is_part(typed, _plain(each))]
    return longer[0] if len(longer) == 1 else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")


def _is_part(typed: str, whole: str) -> bool:
    """prio of priority, Paris of Europe/Paris, shop.send of send: the shorter stands at an end of the longer one."""
    if len(typed) >= _SHORT and whole.startswith(typed):
        return True
    short, long = sorted((typed, whole), key=len)
    return len(short) >= _SHORT and long.endswith(short) and not long[-len(short) - 1].isalnum()


def _slips(typed: str, known: str) -> int | None:
    """How many keys were missed, doubled, hit wrongly or swapped; None when these are two different words.

    More than one slip is forgiven in long words alone, and only behind a first letter that is right.
    """
    longest = max(len(typed), len(known))
    most = 0 if longest < _SHORT else 1 if longest < _LONG or typed[:1] != known[:1] else max(2, longest // 4)
    if abs(len(typed) - len(known)) > most:
        return None
    before: list[int] = []
    row = list(range(len(known) + 1))
    for i, a in enumerate(typed, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(known, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (known[j - 2], typed[i - 2]):
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return None
    return row[-1] if row[-1] <= most else None


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A sentence for a refusal: the nearest known name, or all of them, or of very many the first.

    >>> did_you_mean("mial", ["mail", "exports"])
    "did you mean 'mail'?"
    """
    if (close := nearest(name, known)) is not None:
        return f"did you mean {close!r}?"
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    return f"known: {', '.join(sorted(known)[:_NAMED])}{more}" if known else "there are none"


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise for the first unknown key: a typo must not be a setting that silently does nothing."""
    allowed = list(known)
    for key in given:
        if key not in allowed:
            raise InvalidOption(f"{where}: unknown key {key!r}", fix=did_you_mean(key, allowed))
