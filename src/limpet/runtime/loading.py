"""Finds the app that a child process should run, by the text `module:attr` or `path/to/file.py:attr`, and that text."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from limpet.core.endings.failure import OWN, foreign
from limpet.core.errors import ImportFailed, InvalidOption
from limpet.core.tasks.naming import nearest
from limpet.runtime.settings import App

# Frames that say nothing about the module that is imported: ours, and those of the import itself.
_BETWEEN: Final = (OWN, "<frozen ", os.path.dirname(importlib.__file__) + os.sep)
_ABOVE: Final = 3  # folders above the working folder, in which a module is looked for


def load_app(ref: str) -> App:
    """The app behind a reference; `attr` defaults to `app`, and the working folder is searched too."""
    place, _, attr = ref.partition(":")
    module = found = load_module(place)
    for name in (attr or "app").split("."):
        if not hasattr(found, name):
            raise InvalidOption(f"{place!r} has no {name!r}", fix=_apps_in(place, module, name))
        found = getattr(found, name)
    if not _is_app(found):
        raise InvalidOption(
            f"{place}:{attr or 'app'} is of type {type(found).__name__}, not an app", fix=_apps_in(place, module)
        )
    return cast(App, found)


def load_module(place: str) -> object:
    """The module of that name, or the one in that file; ImportFailed shows where in it the import fails."""
    return _from_file(Path(place)) if place.endswith(".py") else _from_module(place)


def _from_module(name: str) -> object:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidOption(
            f"{name!r} is not the name of a module",
            fix="name the app as shop.tasks:app, or by its file, shop/tasks.py:app",
        )
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    return import_named(name)


def import_named(name: str) -> object:
    """The module of that name, if Python finds it where it looks; ImportFailed as for `load_module`."""
    with _importing(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not _leads_to(name, error.name):
                raise
    raise InvalidOption(f"no module named {name!r}", fix=_module_fix(name))


def _from_file(path: Path) -> object:
    # Under its stem, which is also how tasks declared in __main__ are named.
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidOption(f"{str(path)!r} is not a Python file", fix="name the app as module:attr")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _importing(str(path)):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]  # half of a module is none
            raise
    return module


@contextmanager
def _importing(place: str) -> Iterator[None]:
    try:
        yield
    except ImportFailed:
        raise  # of a module that this one loads
    except SystemExit as error:
        raise InvalidOption(
            f"importing {place!r} ends the program (exit {error.code})",
            fix='move the code that it runs at import under `if __name__ == "__main__":`',
        ) from error
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        fix = "correct it and start again" if missing is None else _missing_fix(missing)
        raise ImportFailed(f"importing {place!r} failed\n{_told(error)}", fix=fix) from error


def _told(error: Exception) -> str:
    """The error with the frames of the modules that were imported, as Python shows it, without the head line."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    one: traceback.TracebackException | None = told
    while one is not None:
        frames = [frame for frame in one.stack if not frame.filename.startswith(_BETWEEN)]
        users = [frame for frame in frames if not foreign(frame.filename)]
        one.stack = traceback.StackSummary.from_list(users or frames)  # of an app that is installed itself: all
        one = one.__cause__ or one.__context__
    text = "".join(told.format()).replace("Traceback (most recent call last):\n", "")
    return text.replace("limpet.core.errors.", "limpet.").rstrip()


def _leads_to(name: str, missing: str | None) -> bool:
    """True when it is the module itself that is not there, or a package that it should be in."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _module_fix(name: str) -> str:
    """What was meant by a module that is not there."""
    package, _, last = name.rpartition(".")
    found = sys.modules.get(package)
    if package and found is None:
        return _module_fix(package)
    places = list(getattr(found, "__path__", ())) if package else [os.getcwd()]
    if not places:
        return _apps_in(package, found, last)
    close = nearest(last, [module.name for module in pkgutil.iter_modules(places)])
    return _missing_fix(name) if close is None else f"did you mean {f'{package}.{close}'.lstrip('.')!r}?"


def _missing_fix(name: str) -> str:
    """How a module may be found that is not."""
    top = name.partition(".")[0]
    for folder in Path.cwd().parents[:_ABOVE]:
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            return f"run it from {folder}, which holds {top!r}"
    return (
        f"run from the folder that holds {top!r} (this is {os.getcwd()}), put that on PYTHONPATH,"
        f" or install it into {sys.prefix}"
    )


def _is_app(found: object) -> bool:
    # Of its class: an object may answer to any name, and a class of apps is no app.
    return callable(getattr(type(found), "parts", None))


def _apps_in(place: str, module: object, wrong: str = "") -> str:
    """Which app was meant."""
    apps = [name for name, value in vars(module).items() if _is_app(value)]
    if not apps:
        return f"there is no Limpet object in {place!r}: write app = Limpet()"
    meant = apps[0] if len(apps) == 1 else nearest(wrong, apps)
    return f"did you mean {place}:{meant}?" if meant else f"its apps are {', '.join(sorted(apps))}"


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
