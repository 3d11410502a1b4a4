"""Loads the modules that declare an app's tasks: once, when the first of them may be needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Final

from limpet.core.errors import ImportFailed, InvalidOption, LimpetError
from limpet.runtime.loading import import_named
from limpet.runtime.settings import App

_EXAMPLE: Final = 'name the modules, as in include=["shop.tasks"]'


class Includes:
    """The modules of `include=[...]`. They import the module of the app, so none is imported when the app is made."""

    def __init__(self, app: App, names: Iterable[str]) -> None:
        self._app = app
        self._names = _checked(names)
        self._is_done = not self._names
        self._failed: LimpetError | None = None
        self._within = set[int]()  # threads that are importing them

    def load(self) -> None:
        """Import what is not imported yet. What failed once fails again: half of its tasks may be declared.

        There is no lock: two threads meet in Python's own import locks, which see deadlocks.
        """
        if self._is_done:
            return
        if self._failed is not None:
            raise self._failed
        thread = threading.get_ident()
        if thread in self._within:
            return  # a module that is being imported asks, and cannot be told what it has not declared yet
        self._within.add(thread)
        try:
            for name in self._names:
                self._refuse_twin(name, import_named(name))
            self._is_done = True
        except (ImportFailed, InvalidOption) as error:
            self._failed = type(error)(f"include: {error.message}", fix=error.fix)
            raise self._failed from error.__cause__
        finally:
            self._within.discard(thread)

    def _refuse_twin(self, name: str, module: object) -> None:
        """A script is imported once more under its own name: that app is another object, and has the tasks."""
        here = [each for each, value in vars(sys.modules["__main__"]).items() if value is self._app]
        others = [value for value in vars(module).values() if type(value) is type(self._app) and value is not self._app]
        if here and others and not any(value is self._app for value in vars(module).values()):
            raise InvalidOption(
                f"{name!r} declares its tasks for another app: {here[0]!r} of the script that runs was imported again "
                "under the name of its module",
                fix="keep the app in a module that is only imported, and run limpet worker MODULE:APP",
            )


def _checked(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidOption(f"include must be a list of modules, got {names!r:.80}", fix=_EXAMPLE)
    found = tuple(names)
    for name in found:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidOption(f"include names {name!r:.80}, which is not the name of a module", fix=_EXAMPLE)
    return tuple(dict.fromkeys(found))
