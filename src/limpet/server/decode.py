"""Decides what the query and the body of a request say; what is unknown or of the wrong kind is refused by name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from starlette.requests import Request

from limpet.core.tasks.naming import did_you_mean
from limpet.server.refusal import BodyTooLarge, BodyTooSlow, InvalidRequest, MalformedBody, UnsupportedMediaType
from limpet.server.route import MiB

JSON: Final = "application/json"
BODY_S: Final = 30.0  # for the first byte of a body; a client that sends one at a time must not hold a request for ever
PACE: Final = 64 * 1024  # bytes a second that a long body must come with

_WHERE: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)


def query_of(pairs: Iterable[tuple[str, str]], kind: Any) -> Any:
    """The query parameters as their type; each stands once, but for those that are lists."""
    fields = {} if kind is NoneType else {each.encode_name: each for each in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            raise InvalidRequest(f"there is no query parameter {name!r:.80}", fix=_known(name, fields))
        if _is_list(fields[name].type):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise InvalidRequest(f"the query parameter {name!r} stands twice", fix="give it once")
        else:
            values[name] = value
    if kind is NoneType:
        return None
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid("query parameter", error) from error


def _is_list(kind: Any) -> bool:
    """Whether a parameter of this type may stand several times."""
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(plain) in (list, tuple, frozenset)


def _known(name: str, fields: Iterable[str]) -> str:
    names = list(fields)
    return did_you_mean(name, names) if names else "this route takes none"


def body_of(raw: bytes, content_type: str, kind: Any) -> Any:
    """The body as its type; without one, what an empty object would say."""
    if kind is NoneType:
        return None
    declared = content_type.partition(";")[0].strip().lower()
    if raw and declared != JSON:
        raise UnsupportedMediaType(f"the body is declared as {declared or 'nothing'!r:.80}", fix=f"send {JSON}")
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _invalid("field", error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(f"the body is not JSON: {error}", fix="send one JSON value in UTF-8") from error
    except RecursionError as error:
        raise MalformedBody("the body is nested too deeply", fix="send flatter JSON") from error


async def raw_body(request: Request, most_bytes: int) -> bytes:
    """The bytes of the body; refused as soon as they are known to be too many, or come too slowly."""
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > most_bytes:
        raise _too_large(f"{int(said):,} bytes", most_bytes)
    chunks, size, began_s = [], 0, asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(BODY_S) as limit:
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(f"more than {most_bytes:,} bytes", most_bytes)
                chunks.append(chunk)
                limit.reschedule(began_s + BODY_S + size / PACE)
    except TimeoutError:
        raise BodyTooSlow(
            f"{size:,} bytes of the body have come, and then too few", fix=f"send it at once, within {BODY_S:g} s"
        ) from None
    return b"".join(chunks)


def _too_large(size: str, most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body has {size}", fix=f"{most_bytes / MiB:g} MiB at most: send several requests")


def _invalid(what: str, error: msgspec.ValidationError) -> InvalidRequest:
    """The refusal in words of ours; msgspec says what it expected, and where."""
    found = _WHERE.match(str(error))
    said, where = (found["what"], found["where"]) if found is not None else (str(error), "")
    said = said.replace("`", "'").replace("Object contains unknown", "there is no").replace("Object missing", "missing")
    return InvalidRequest(f"{what} {where!r}: {said}" if where else said, fix="/openapi.json says what is taken")
