"""Reads what an error says of the answer behind it: status, codes, headers and body, wherever its library keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

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


def library_of(kind: type) -> str:
    """The first part of the module that a class says it comes from."""
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries."""
    response = peek(error, "response")
    found: list[Any] = [peek(error, "status_code"), peek(error, "status"), peek(error, "http_status")]
    if isinstance(response, Mapping):  # botocore
        found.append((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
    else:
        found += [peek(response, "status_code"), peek(response, "status")]
    if any(library_of(kind) in ("urllib", "google") for kind in type(error).__mro__):
        found.append(peek(error, "code"))  # elsewhere `code` is anything from an exit code to a word
    for status in found:
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return int(status)
    return None


def headers_of(error: BaseException) -> dict[str, str]:
    """Header names in small letters; empty when the error carries none we can read."""
    response = peek(error, "response")
    try:
        if isinstance(response, Mapping):  # botocore
            found = (response.get("ResponseMetadata") or {}).get("HTTPHeaders")
        else:
            found = peek(response, "headers") or peek(error, "headers")
        return {str(name).lower(): str(value).strip() for name, value in (found or {}).items()}
    except Exception:
        return {}


def bodies_of(error: BaseException) -> Iterator[Any]:
    """What the answer said, as JSON values; SDKs keep it with the error, plain HTTP clients with the response."""
    yield peek(error, "body")
    yield peek(error, "details")
    response = peek(error, "response")
    if isinstance(response, Mapping):
        yield response
        return
    # Only what has been read already: asking for more could block the worker, or raise.
    raw = peek(response, "_content")
    if isinstance(raw, bytes) and 0 < len(raw) <= _BODY_BYTES:
        try:
            yield msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return


def codes_of(error: BaseException) -> Iterator[str]:
    """The words by which the other side says what went wrong."""
    for name in ("code", "type", "sqlite_errorname"):
        said = peek(error, name)
        if isinstance(said, str):
            yield said
    for kind in type(error).__mro__:
        if library_of(kind) == "grpc":  # its code is a method that answers an enum
            said = peek(peek(error, "code")(), "name")
            if isinstance(said, str):
                yield said
            break
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
