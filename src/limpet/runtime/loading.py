"""Finds the app that a child process should run, by the text `module:attr` or `path/to/file.py:attr`, and that text."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import cast

from limpet.core.errors import InvalidOption
from limpet.runtime.settings import App


def load_app(ref: str) -> App:
    """The app behind a reference; `attr` defaults to `app`, and the working folder is searched too."""
    place, _, attr = ref.partition(":")
    found = load_module(place)
    for name in (attr or "app").split("."):
        if not hasattr(found, name):
            raise InvalidOption(f"{place!r} has no {name!r}", fix="name the app as module:attr, such as shop.tasks:app")
        found = getattr(found, name)
    if not hasattr(found, "parts"):
        raise InvalidOption(f"{ref!r} is a {type(found).__name__}, not an app", fix="name a Limpet object")
    return cast(App, found)


def load_module(place: str) -> object:
    """The module of that name, or the one in that file."""
    try:
        return _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    except SystemExit as error:
        raise InvalidOption(
            f"importing {place!r} ends the program (exit {error.code})",
            fix='move the code that it runs at import under `if __name__ == "__main__":`',
        ) from error


def _from_module(name: str) -> object:
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidOption(
                f"no module named {name!r}", fix="run from the folder that holds it, or put that on PYTHONPATH"
            ) from error
        raise


def _from_file(path: Path) -> object:
    # Under its stem, which is also how tasks declared in __main__ are named.
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidOption(f"{str(path)!r} is not a Python file", fix="name the app as module:attr")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_ref(app: App) -> str | None:
    """`module:attr` (or `file.py:attr`) under which another process finds this app; None when it has no such name.

    It is looked for in the modules of its tasks.
    """
    for name in {task.fn.__module__ for task in app.parts().tasks.values()}:
        module = sys.modules.get(name)
        for attr, value in list(vars(module).items()) if module is not None else ():
            if value is app:
                file = getattr(module, "__file__", None)
                return f"{name}:{attr}" if name != "__main__" else f"{file}:{attr}" if file else None
    return None
