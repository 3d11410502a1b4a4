"""Writes docs/reference/http.md from the table of routes.

`python tools/http_reference.py` writes the page; with --check it only says whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args

import msgspec

from limpet.core.access.role import ABOUT, INCLUDED, ROLES, Role
from limpet.server.route import Route
from limpet.server.table import ROUTES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http.md"
HEAD = """# HTTP API

Every route, from the table by which the server answers; `/openapi.json` has the same with all types. How to use it:
[Use the HTTP API](../how-to/http-api.md). Paths are below `/api/v1`, but for those of Health, Metrics and Documents. A
star marks what a body must have.

"""


def page() -> str:
    """The whole page."""
    roles = "".join(f"- `{role}`: {ABOUT[role]}{_included(role)}\n" for role in ROLES)
    sections = "\n".join(line for noun, routes in groupby(ROUTES, _section) for line in _table(noun, list(routes)))
    return f"{HEAD}{roles}\n{sections.rstrip()}\n"


def _included(role: Role) -> str:
    others = [each for each in ROLES if each != role and each in INCLUDED[role]]
    return f"; also what {', '.join(others)} may" if others else ""


def _section(route: Route) -> str:
    return route.noun.partition("_")[0]


def _table(noun: str, routes: list[Route]) -> Iterator[str]:
    yield f"## {noun.capitalize()}\n"
    yield "| route | role | what it does | takes | answers |"
    yield "|---|---|---|---|---|"
    for route in routes:
        takes = ", ".join([*_query(route), *_body(route)])
        role = "" if route.role is None else f"`{route.role}`"
        yield f"| `{route.method} {route.path}` | {role} | {route.summary} | {takes} | {_answer(route)} |"
    yield ""


def _query(route: Route) -> list[str]:
    if route.query is NoneType:
        return []
    return [f"`?{field.encode_name}`" for field in msgspec.structs.fields(route.query)]


def _body(route: Route) -> list[str]:
    """The fields of the body."""
    kind: Any = get_args(route.body)[0] if isinstance(route.body, UnionType) else route.body
    if kind is NoneType:
        return []
    return [f"`{field.encode_name}`{'*' if field.required else ''}" for field in msgspec.structs.fields(kind)]


def _answer(route: Route) -> str:
    if route.stream or route.text:
        return f"`{route.stream or route.text}`"
    kinds = get_args(route.answer) if route.of or isinstance(route.answer, UnionType) else (route.answer,)
    names = " or ".join(f"`{getattr(kind, '__name__', 'object')}`" for kind in kinds)
    return f"`{route.of}`: list of {names}" if route.of else names


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
