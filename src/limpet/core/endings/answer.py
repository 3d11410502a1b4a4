"""Reads what an error says of the answer behind it: status, codes, headers and body, wherever a library keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

_NUMBERED: Final = frozenset({"urllib", "google"})  # whose `code` is the status
_BODY_BYTES: Final = 64 * 1024  # an error that says more than this says it elsewhere, too
_ITEMS: Final = 20  # of a list of details
_DEPTH: Final = 4
_CODES: Final = ("code", "type", "Code", "error_code", "reason", "status")
_INSIDE: Final = ("error", "Error", "details", "errors")


def peek(thing: object, name: str) -> Any:
    """An attribute, or None: other people's properties may raise, and must not cost a job its outcome."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def classes_of(error: BaseException) -> tuple[tuple[str, str], ...]:
    """Its class and the bases of that, nearest first: each as the first part of its module, and its name."""
    kind: Any = type(error)
    return _looked_up(kind)[0]


def libraries_of(error: BaseException) -> frozenset[str]:
    """Where its class and the bases of that come from."""
    kind: Any = type(error)
    return _looked_up(kind)[1]


@lru_cache(maxsize=1_000)
def _looked_up(kind: type) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    modules: list[object] = [base.__module__ for base in kind.__mro__]  # a class may say that any thing is its module
    libraries = [_library(module) for module in modules]
    names = [base.__qualname__ for base in kind.__mro__]
    return tuple(zip(libraries, names, strict=True)), frozenset(libraries)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries."""
    response = peek(error, "response")
    found: list[Any] = [peek(error, "status_code"), peek(error, "status"), peek(error, "http_status")]
    if isinstance(response, Mapping):  # botocore
        found.append((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
    else:
        found += [peek(response, "status_code"), peek(response, "status")]
    if not _NUMBERED.isdisjoint(libraries_of(error)):
        found.append(peek(error, "code"))  # elsewhere `code` is anything from an exit code to a word
    for status in found:
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return int(status)
    return None


def headers_of(said: object) -> dict[str, str]:
    """Header names in small letters, of an error, a response or the headers themselves; empty when it carries none."""
    try:
        return {_text(name).lower(): _text(value).strip() for name, value in _headers(said).items()}
    except Exception:
        return {}


def _headers(said: object) -> Any:
    """Where the headers are: in a response, behind an error, or what was given already."""
    if isinstance(said, Mapping):
        amazon = said.get("ResponseMetadata")
        return amazon.get("HTTPHeaders") if isinstance(amazon, Mapping) else said
    for name in ("response", "resp"):  # the second one is Google's
        response = peek(said, name)
        found = _headers(response) if isinstance(response, Mapping) else peek(response, "headers")
        if found:
            return found
    # What urllib calls headers is no mapping.
    return peek(said, "headers") or said


def _text(part: object) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


def is_of_answer(error: BaseException, clients: frozenset[str]) -> bool:
    """True when it was raised while one of these HTTP clients, or `json.load` of its answer, read what had come."""
    tb = error.__traceback__
    while tb is not None:
        frame = tb.tb_frame
        library = _library(frame.f_globals.get("__name__"))
        if library in clients or (library == "json" and _library(type(frame.f_locals.get("fp")).__module__) in clients):
            return True
        tb = tb.tb_next
    return False


def _library(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def bodies_of(error: object) -> Iterator[Any]:
    """What the answer said, as JSON values; SDKs keep it with the error, plain HTTP clients with the response.

    Only what has been read already: asking a response for more could block the worker, or raise.
    """
    if not isinstance(error, BaseException):
        return
    for name in ("body", "details", "error_details", "content"):
        yield _decoded(peek(error, name))
    response = peek(error, "response")
    yield response if isinstance(response, Mapping) else _decoded(peek(response, "_content"))


def _decoded(raw: Any) -> Any:
    """The value that text stands for; what is no text is one already."""
    if not isinstance(raw, bytes | str):
        return raw
    try:
        return msgspec.json.decode(raw) if len(raw) <= _BODY_BYTES else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def codes_of(error: BaseException) -> Iterator[str]:
    """The error codes of an answer."""
    for name in ("code", "type", "sqlite_errorname"):
        said = peek(error, name)
        if isinstance(said, str):
            yield said
    if "grpc" in libraries_of(error):  # its code is a method that answers an enum
        said = peek(peek(error, "code")(), "name")
        if isinstance(said, str):
            yield said
    for body in bodies_of(error):
        yield from _words(body, _DEPTH)


def _words(place: Any, depth: int) -> Iterator[str]:
    if isinstance(place, list | tuple):
        for item in place[:_ITEMS]:
            if isinstance(item, Mapping) and depth:
                yield from _words(item, depth - 1)
    if not isinstance(place, Mapping):
        return
    for name in _CODES:
        said = place.get(name)
        if isinstance(said, str):
            yield said
    for name in _INSIDE:
        if depth:
            yield from _words(place.get(name), depth - 1)
