"""Writes the OpenAPI 3.1 document: paths, parameters, bodies and answers, all from the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, get_args

import msgspec
from msgspec import inspect

from limpet.core.access.refusal import Forbidden, TokenInvalid, TokenRequired, TooManyRequests
from limpet.core.access.role import ABOUT, ROLES
from limpet.core.errors import LimpetError, StoreUnreachable
from limpet.core.records.live import LiveEvent
from limpet.core.records.record import Record
from limpet.core.version import VERSION
from limpet.ops.codes import MEANINGS, Meaning
from limpet.ops.idempotency import KEY_CHARS
from limpet.server.examples import example_of
from limpet.server.links import links_of
from limpet.server.precondition import record_of
from limpet.server.problem import KIND, MEDIA_TYPE, Problem
from limpet.server.refusal import (
    AnswerNotKept,
    BodyTooLarge,
    BodyTooSlow,
    InvalidRequest,
    KeyInUse,
    KeyReused,
    MalformedBody,
    RecordChanged,
    UnsupportedMediaType,
)
from limpet.server.route import Route

JSON: Final = "application/json"
REF: Final = "#/components/schemas/{name}"
EXPOSED: Final = '# TYPE limpet_queue_jobs gauge\nlimpet_queue_jobs{queue="mail",state="ready"} 3.0\n# EOF\n'

ALWAYS: Final = (StoreUnreachable,)
WITH_QUERY: Final = (InvalidRequest,)
WITH_ROLE: Final = (TokenRequired, TokenInvalid, Forbidden, TooManyRequests)
WITH_KEY: Final = (KeyReused, KeyInUse, AnswerNotKept)
WITH_TAG: Final = (RecordChanged,)
WITH_BODY: Final = (InvalidRequest, MalformedBody, UnsupportedMediaType, BodyTooLarge, BodyTooSlow)

ABOUT_ALL: Final = """The HTTP API of Limpet, a task queue.

Every refusal is a problem document (RFC 9457): `code` is stable, `fix` says what to do next. Unknown query parameters
and unknown fields are refused. Instants are RFC 3339 in UTC; durations are seconds or text such as `5m`.

Whole numbers are written without a fraction: JSON Schema takes 7.0 for an integer, this API does not. Ids, tokens and
counters are below 2^53; numbers in arguments and results of jobs may be larger.

Names in a path (of queues, tasks, limits, breakers, schedules) may hold a slash, written %2F.
"""


def document(routes: Sequence[Route], prefix: str = "") -> dict[str, Any]:
    """The document for these routes, below the prefix under which they are mounted."""
    types = Types(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.full_path, {})[route.method.lower()] = _operation(route, types, routes)
    roles = "\n".join(f"- `{role}`: {ABOUT[role]}" for role in ROLES)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Limpet", "version": VERSION, "description": ABOUT_ALL, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": types.components,
            "examples": _examples(routes),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": f"A token has one role:\n\n{roles}\n"}
            },
        },
    }


class Types:
    """The schemas of all types that routes take and answer."""

    def __init__(self, routes: Sequence[Route]) -> None:
        asked = [each for route in routes for each in (route.query, route.body, _item(route))]
        found = list(dict.fromkeys([Problem, *(part for each in asked for part in parts_of(each))]))
        schemas, self.components = msgspec.json.schema_components(found, ref_template=REF)
        self._schemas = dict(zip(found, schemas, strict=True))
        for info in _structs(found):
            _complete(self.components[self._name(info.cls)], info)
        self.queries = {each: self._taken(each) for each in {route.query for route in routes} - {NoneType}}
        for each in self.queries.keys() - {route.body for route in routes}:
            del self.components[self._name(each)]  # its properties are parameters

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of one type."""
        schemas = [self._schemas[part] for part in parts_of(kind)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    @staticmethod
    def must_have(body: Any) -> bool:
        """Whether a body cannot be left out: an empty object would not do."""
        try:
            msgspec.json.decode(b"{}", type=body)
        except msgspec.ValidationError:
            return True
        return False

    def _name(self, kind: type) -> str:
        """What a struct is called among the components: its name, with its module where two have that."""
        return kind.__name__ if kind.__name__ in self.components else f"{kind.__module__}.{kind.__qualname__}"

    def _taken(self, query: Any) -> dict[str, Any]:
        """The schema of a query, whose properties become parameters."""
        return dict(self.components[self._name(query)])


def parts_of(kind: Any) -> list[Any]:
    """A type, or the records that it is one of: msgspec describes no union of records."""
    if isinstance(kind, UnionType) and all(_is_struct(each) for each in get_args(kind)):
        return [*get_args(kind)]
    return [] if kind is NoneType else [kind]


def _structs(kinds: Iterable[Any]) -> list[inspect.StructType]:
    """Every struct that the types are made of."""
    found: dict[type, inspect.StructType] = {}
    open_ = [inspect.type_info(kind) for kind in kinds]
    while open_:
        info = open_.pop()
        if isinstance(info, inspect.Metadata):
            open_.append(info.type)
        elif isinstance(info, inspect.StructType) and info.cls not in found:
            found[info.cls] = info
            open_ += [field.type for field in info.fields]
        elif isinstance(info, inspect.UnionType):
            open_ += info.types
        elif isinstance(info, inspect.ListType | inspect.VarTupleType):
            open_.append(info.item_type)
        elif isinstance(info, inspect.DictType):
            open_ += [info.key_type, info.value_type]
    return list(found.values())


def _complete(schema: dict[str, Any], info: inspect.StructType) -> None:
    """What msgspec leaves out: that instants are such, what excludes each other, and that answers have all fields."""
    for field in info.fields:
        _say_format(schema["properties"][field.encode_name], field.type)
    schema.update(getattr(info.cls, "RULES", {}))
    if issubclass(info.cls, Record) and info.cls.to_dict is Record.to_dict:
        schema["required"] = [field.encode_name for field in info.fields]


def _say_format(schema: dict[str, Any], kind: inspect.Type) -> None:
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.DateTimeType):
        schema["format"] = "date-time"
    if isinstance(kind, inspect.UnionType) and any(isinstance(each, inspect.DateTimeType) for each in kind.types):
        for each in schema.get("anyOf", ()):
            if each.get("type") == "string":
                each["format"] = "date-time"


def _operation(route: Route, types: Types, routes: Sequence[Route]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{route.noun}_{route.handler.__name__}",
        "tags": [route.noun.partition("_")[0]],
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route, types), *_headers(route, routes)],
        "responses": _responses(route, types, routes),
        "security": [] if route.role is None else [{"token": []}],
    }
    if route.role is not None:
        found["x-limpet-role"] = route.role
    if route.body is not NoneType:
        content: dict[str, Any] = {"schema": types.of(route.body)}
        if route.example is not None:
            content["example"] = route.example
        found["requestBody"] = {"content": {JSON: content}, "required": types.must_have(route.body)}
    links = links_of(route, routes)
    if links:
        found["responses"][str(route.status)]["links"] = links
    return found


def _item(route: Route) -> Any:
    """The record that a route answers, one or many of."""
    if route.stream or route.text:
        return NoneType
    return get_args(route.answer)[0] if route.of else route.sends or route.answer


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", route.path)
    shape = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": shape} for name in names]


def _query_parameters(route: Route, types: Types) -> list[dict[str, Any]]:
    if route.query is NoneType:
        return []
    schema = types.queries[route.query]
    found = []
    for name, shape in schema["properties"].items():
        plain = _without_null(shape)
        words = plain.pop("description", "")
        found.append({"name": name, "in": "query", "description": words, "required": False, "schema": plain})
    return found


def _headers(route: Route, routes: Sequence[Route]) -> list[dict[str, Any]]:
    found = []
    if route.method == "POST":
        words = "A key of your choice: the same request again within 24 hours is answered as the first time."
        shape = {"type": "string", "minLength": 1, "maxLength": KEY_CHARS, "pattern": "^[ -~]+$"}
        found.append({"name": "Idempotency-Key", "description": words, "schema": shape})
    if record := record_of(route, routes):
        words = f"The ETag of GET {record.full_path}: a record that has changed meanwhile is refused."
        found.append({"name": "If-Match", "description": words, "schema": {"type": "string"}})
    return [{**each, "in": "header", "required": False} for each in found]


def _without_null(shape: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter is left out instead of being null."""
    others = [each for each in shape.get("anyOf", ()) if each != {"type": "null"}]
    plain = {**shape, **others[0]} if len(others) == 1 else dict(shape)
    if len(others) == 1:
        del plain["anyOf"]
    if plain.get("default", ...) is None:
        del plain["default"]
    return plain


def _responses(route: Route, types: Types, routes: Sequence[Route]) -> dict[str, Any]:
    found: dict[str, Any] = {str(route.status): _success(route, types)}
    if route.etag:
        found["304"] = {"description": "It has not changed since the ETag in If-None-Match."}
    errors = [*ALWAYS, *WITH_QUERY, *(WITH_ROLE if route.role is not None else ()), *route.errors]
    errors += WITH_BODY if route.body is not NoneType else ()
    errors += WITH_KEY if route.method == "POST" else ()
    errors += WITH_TAG if record_of(route, routes) else ()
    by_status: dict[int, list[type[LimpetError]]] = {}
    for error in dict.fromkeys(errors):
        by_status.setdefault(MEANINGS[error.code].status, []).append(error)
    for status in sorted(by_status):
        found[str(status)] = _problem([(error.code, MEANINGS[error.code]) for error in by_status[status]])
    found["default"] = _problem([("limpet", MEANINGS["limpet"])])
    return found


def _success(route: Route, types: Types) -> dict[str, Any]:
    if route.stream:
        content = {"schema": {"type": "string"}, "example": "".join(map(_frame, get_args(LiveEvent)))}
        return {"description": route.summary, "content": {route.stream: content}}
    if route.text:
        content = {"schema": {"type": "string"}, "example": EXPOSED}
        return {"description": route.summary, "content": {route.text: content}}
    if route.status == 204:
        return {"description": route.summary}
    schema = types.of(_item(route))
    if route.of:
        properties = {route.of: {"type": "array", "items": schema}}
        schema = {"type": "object", "properties": properties, "required": [route.of]}
    shown = {name: {"$ref": f"#/components/examples/{name}"} for name in _answers(route)}
    answer: dict[str, Any] = {"description": route.summary, "content": {JSON: {"schema": schema, "examples": shown}}}
    if route.etag:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}, "description": "For If-None-Match."}}
    return answer


def _problem(codes: Sequence[tuple[str, Meaning]]) -> dict[str, Any]:
    content = {
        "schema": {"$ref": REF.format(name="Problem")},
        "examples": {code: {"$ref": f"#/components/examples/{code}"} for code, _ in codes},
    }
    return {"description": "; ".join(meaning.title for _, meaning in codes), "content": {MEDIA_TYPE: content}}


def _answers(route: Route) -> dict[str, Any]:
    """An example of each record that the route may answer, by a name that no other shape has."""
    if route.stream or route.text:
        return {}
    found = {each.__name__: example_of(each) for each in parts_of(_item(route)) if _is_struct(each)}
    return {f"{route.of}_{name}": {route.of: [shown]} for name, shown in found.items()} if route.of else found


def _frame(kind: type[LiveEvent]) -> str:
    """One message of the stream."""
    shown = example_of(kind)
    return f"id: {shown['id']}\nevent: {shown['type']}\ndata: {json.dumps(shown)}\n\n"


def _examples(routes: Sequence[Route]) -> dict[str, Any]:
    """An answer of each shape, and a problem document of each code that a route may answer."""
    answers = {name: {"value": value} for route in routes for name, value in _answers(route).items()}
    errors: list[type[LimpetError]] = [*ALWAYS, *WITH_QUERY, *WITH_ROLE, *WITH_BODY, *WITH_KEY, *WITH_TAG]
    errors += [error for route in routes for error in route.errors]
    codes = sorted({"limpet", *(error.code for error in errors)})
    return {**answers, **{code: {"value": _example(code, MEANINGS[code])} for code in codes}}


def _example(code: str, meaning: Meaning) -> dict[str, Any]:
    said = {"detail": f"{meaning.title}: ...", "instance": "/api/v1/...", "code": code, "fix": None}
    return {"type": f"{KIND}{code}", "title": meaning.title, "status": meaning.status, **said}
