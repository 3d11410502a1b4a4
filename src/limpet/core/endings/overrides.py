"""Decides what `classify=` of a task or an app says: errors by class, name, status or code, or functions that judge."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from limpet.core.endings.answer import codes_of, status_of
from limpet.core.endings.signals import JobSignal
from limpet.core.endings.verdict import SAYABLE, Classifier, Kind, Verdict
from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean

# A class, a name, a status or "code:…" → what it means. The keys are checked at declaration, not by type checkers.
Kinds = Mapping[Any, Kind]
ClassifyOption = Kinds | Classifier | Sequence[Kinds | Classifier]

CODE: Final = "code:"


class Overrides:
    """A mapping such as `{ValueError: "permanent", "shop.errors.Flaky": "transient", 404: "transient"}`.

    Of the error's bases the nearest counts, whatever the order of the mapping; a code or a status is more exact than
    a class. A name is a class with its module, or with the package that holds that module.

    >>> judge = Overrides({"shop.Flaky": "transient", LookupError: "permanent"})
    >>> judge.match(KeyError("x"))
    ('LookupError', 'permanent')
    """

    def __init__(self, kinds: Kinds, *, what: str = "classify") -> None:
        self._codes: dict[str, Kind] = {}
        self._statuses: dict[int, Kind] = {}
        self._classes: dict[type, Kind] = {}
        self._names: dict[str, list[tuple[str, Kind]]] = {}  # by the last part of the name
        for key, kind in kinds.items():
            self._add(key, _checked_kind(key, kind, what), what)

    def _add(self, key: object, kind: Kind, what: str) -> None:
        if isinstance(key, type):
            self._classes[_checked_class(key, what)] = kind
        elif isinstance(key, int) and not isinstance(key, bool):
            self._statuses[_checked_status(key, what)] = kind
        elif isinstance(key, str) and key.startswith(CODE) and key != CODE:
            self._codes[key.removeprefix(CODE)] = kind
        elif isinstance(key, str):
            name = _checked_class_name(key, what)
            self._names.setdefault(name.rpartition(".")[2], []).append((name, kind))
        else:
            raise InvalidOption(
                f"{what}= names {key!r:.80}, which is not an error",
                fix='name an exception class, "module.Class", a status such as 404, or "code:card_declined"',
            )

    def match(self, error: BaseException) -> tuple[str, Kind] | None:
        """The entry that speaks of this error, in words, and what it says."""
        if self._codes:
            for code in codes_of(error):
                if code in self._codes:
                    return f"{CODE}{code}", self._codes[code]
        if self._statuses and (status := status_of(error)) in self._statuses:
            return str(status), self._statuses[status]
        for base in type(error).__mro__:
            kind = self._classes.get(base)
            if kind is not None:
                return base.__qualname__, kind
            for name, said in self._names.get(base.__qualname__.rpartition(".")[2], ()):
                if _is_named(base, name):
                    return name, said
        return None

    def __call__(self, error: BaseException) -> Verdict | None:
        found = self.match(error)
        return None if found is None else Verdict(found[1])

    def entries(self) -> list[tuple[str, Kind]]:
        """All of it, in words."""
        return [
            *((f"{CODE}{code}", kind) for code, kind in self._codes.items()),
            *((str(status), kind) for status, kind in self._statuses.items()),
            *((f"{base.__module__}.{base.__qualname__}", kind) for base, kind in self._classes.items()),
            *(entry for entries in self._names.values() for entry in entries),
        ]


def classifiers_of(option: ClassifyOption, *, what: str = "classify") -> tuple[Classifier, ...]:
    """What `classify=` means: one mapping, one function, or several of them, of which the first with a word wins."""
    if isinstance(option, Mapping) or callable(option):
        return (_classifier(option, what),)
    several: object = option  # a checker knows what it is; a caller may not have asked one
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise InvalidOption(f"{what}={several!r:.80} classifies nothing", fix=_FORMS)
    return tuple(_classifier(one, what) for one in several)


_FORMS: Final = 'pass a mapping such as {ValueError: "permanent"}, a function(error) → kind or None, or a list of them'


def _classifier(one: Any, what: str) -> Classifier:
    if isinstance(one, Mapping):
        return Overrides(one, what=what)
    if isinstance(one, type) and issubclass(one, BaseException):
        raise InvalidOption(
            f"{what}= names {one.__qualname__} and does not say what it means",
            fix=f'say it in a mapping: {{{one.__qualname__}: "permanent"}}',
        )
    if not callable(one):
        raise InvalidOption(f"{what}= holds {one!r:.80}, which classifies nothing", fix=_FORMS)
    if inspect.iscoroutinefunction(one):
        raise InvalidOption(f"{what}= holds {_name(one)}(), which is async", fix="use a plain def: it is asked once")
    return cast(Classifier, one)


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _checked_kind(key: object, kind: object, what: str) -> Kind:
    for known in SAYABLE:
        if kind == known:
            return known
    said = f"{what}={{{key.__qualname__ if isinstance(key, type) else repr(key)}: {kind!r:.80}}}"
    if kind == "cancelled":
        raise InvalidOption(f"{said} cannot cancel a job", fix='raise Cancel("why") in the task')
    raise InvalidOption(f"{said} is not a kind of error", fix=did_you_mean(str(kind), SAYABLE))


def _checked_class(key: type, what: str) -> type:
    if not issubclass(key, BaseException):
        raise InvalidOption(
            f"{what}= names {key.__qualname__}, which is not an exception class", fix="name an exception class"
        )
    if issubclass(key, JobSignal):
        raise InvalidOption(
            f"{what}= names {key.__qualname__}, which says itself what becomes of the job",
            fix="raise another signal, or an error of your own",
        )
    return key


def _checked_status(key: int, what: str) -> int:
    if 400 <= key <= 599:
        return key
    raise InvalidOption(f"{what}= names {key}, which is no HTTP status of an error", fix="use one from 400 to 599")


def _checked_class_name(key: str, what: str) -> str:
    if _is_dotted(key):
        return key
    if key.isidentifier():
        found = getattr(builtins, key, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return f"builtins.{key}"
    dotted = key.replace(":", ".")
    example, code = (
        dotted if _is_dotted(dotted) else "shop.errors.Flaky",
        key if key.isidentifier() else "card_declined",
    )
    raise InvalidOption(
        f"{what}= names {key!r:.80}, which is neither a builtin exception nor a class with its module",
        fix=f'write "{example}", a status such as 404 as a number, or a code as "code:{code}"',
    )


def _is_dotted(text: str) -> bool:
    return "." in text and all(part.isidentifier() for part in text.split("."))


def _is_named(base: type, name: str) -> bool:
    """True for the class itself, and for one that its package exports from a module inside."""
    module: object = base.__module__  # a class may say that any thing is its module
    if not isinstance(module, str):
        return False
    package = name.removesuffix(f".{base.__qualname__}")
    return package != name and (module == package or module.startswith(f"{package}."))
