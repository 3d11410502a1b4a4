"""Reads the Lua scripts of the engine: one file per verb, with the libraries that it names put in front."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from importlib import resources
from typing import Final

from msgspec import Struct

from limpet.stores.redis.names import UnknownName, resolve

_USES: Final = re.compile(r"^-- Uses:(.*)$", re.MULTILINE)
_FAST: Final = re.compile(r"^-- Fast path: (\w+)$", re.MULTILINE)
_PART: Final = re.compile(r"^ *-- Part: (\S+)$", re.MULTILINE)
_HEADER: Final = re.compile(r"\A(?:--.*\n)+")


class Script(Struct, frozen=True):
    """A verb as the server runs it. `sha` is the name under which the server keeps it."""

    name: str
    text: str
    sha: str


def call_name() -> bytes:
    """The name of one call: when its answer is lost it is repeated, and then it must not happen again."""
    return os.urandom(12)


@cache
def script(name: str, *, fast_path: bool = True) -> Script:
    """The script of a verb, by the name of its file. Without its fast path it does the same, more slowly."""
    verb = source(f"{name}.lua")
    base, *modules = uses(verb)
    load = ["local function load_modules()", *map(_lazy, modules), "end"]
    fast = [_text(path) for path in _FAST.findall(verb) if fast_path]
    # From one function further in, what the base names is captured without a search.
    text = "\n".join([_text(base), "return (function()", *load, *fast, "load_modules()", verb, "end)()"])
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(library: str) -> str:
    return _HEADER.sub("", source(f"lib/{library}.lua"))


def _lazy(library: str) -> str:
    """A module that is loaded when something in it is first asked for (see lib/base.lua)."""
    return f"{library} = lazy({{ function()\n{_text(library)}\nreturn {library}\nend }}, on_first_use)"


def uses(text: str) -> list[str]:
    """The libraries that a script names, in that order."""
    found = _USES.search(text)
    return found.group(1).split() if found else []


@cache
def source(path: str) -> str:
    """The text of a file below lua/, with what its names stand for."""
    try:
        return resolve(_PART.sub(_part, _read(path)))
    except UnknownName as error:
        raise UnknownName(f"lua/{path}: {error}") from None


def _part(named: re.Match[str]) -> str:
    """The text of a file that is a part of a library: they share their locals, and cost nothing when a script runs."""
    return _HEADER.sub("", _read(f"lib/{named[1]}.lua")).rstrip("\n")


def _read(path: str) -> str:
    return resources.files("limpet.stores.redis").joinpath("lua", *path.split("/")).read_text("utf-8")


@cache
def names() -> tuple[str, ...]:
    """Every script there is."""
    folder = resources.files("limpet.stores.redis").joinpath("lua")
    return tuple(sorted(entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua")))
