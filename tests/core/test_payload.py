"""Arguments are checked at the door, stored as JSON by name, and come back as what the annotations say."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidArguments, InvalidTask, NotSerialisable, PayloadTooLarge
from limpet.core.flows.refs import Given, ParentFailed, Ref
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Input
from limpet.core.tasks.codec import canonical, decode_json
from limpet.core.tasks.payload import Signature

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]  # a name that exists for checkers only

MAX = 262_144


class Colour(Enum):
    red = "r"


class Odd(Enum):
    thing = object()


class Level(IntEnum):
    low = 1


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    at: datetime
    colour: Colour = Colour.red
    notes: dict[str, int] = field(default_factory=dict)


class Point(msgspec.Struct):
    x: int
    y: int = 0


@attrs.define
class Size:
    w: int
    h: int


class Scored(pydantic.BaseModel):
    score: float


class User(pydantic.BaseModel):
    name: str
    born: date
    tags: set[str] = set()


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Loose(pydantic.BaseModel):
    data: dict[str, Any]


class Pair(NamedTuple):
    a: int
    b: str


class Row(TypedDict):
    k: int


class Slug(str):
    __slots__ = ()


def roundtrip(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    signature = Signature.of(fn)
    return signature.decode(signature.encode(signature.bind(args, kwargs), max_bytes=MAX)[0])


def takes(annotation: Any) -> Callable[..., Any]:
    def fn(value: Any) -> None: ...

    fn.__annotations__["value"] = annotation
    return fn


ORDER = Order(UUID(int=7), [Line("a", Decimal("1.10"))], datetime(2030, 1, 2, 3, 4, 5, 678, UTC), notes={"x": 1})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "ü\n\x00"),
        (int, -5),
        (int, 2**200),
        (float, 1.5),
        (bool, True),
        (None, None),
        (Any, {"a": [1, None, {"b": "c"}]}),
        (bytes, b"\x00\xff"),
        (bytearray, bytearray(b"ab")),
        (list[bytes], [b"a", b""]),
        (dict[str, bytes], {"a": b"b"}),
        (Optional[bytes], b"x"),  # noqa: UP045  the old spelling must work too
        (datetime, datetime(2030, 1, 1, tzinfo=UTC)),
        (date, date(2030, 1, 1)),
        (timedelta, timedelta(seconds=90)),
        (UUID, UUID(int=1)),
        (Decimal, Decimal("1.000000000000000000001")),
        (Colour, Colour.red),
        (Level, Level.low),
        (Literal["a", "b"], "a"),
        (Order, ORDER),
        (list[Order], [ORDER, ORDER]),
        (dict[str, Order], {"o": ORDER}),
        (Order | None, None),
        (Point, Point(1, 2)),
        (tuple[Point, ...], (Point(1), Point(2))),
        (Size, Size(1, 2)),
        (list[Size], [Size(1, 2)]),
        (User, User(name="ann", born=date(2000, 1, 1), tags={"x"})),
        (list[User], [User(name="ann", born=date(2000, 1, 1))]),
        (User | None, User(name="ann", born=date(2000, 1, 1))),
        (dict[str, list[User]], {"a": [User(name="b", born=date(2000, 1, 1))]}),
        (Pair, Pair(1, "b")),
        (Row, {"k": 1}),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, str], (1, "a")),
        (dict[int, str], {1: "a"}),
        (Sequence[int], [1, 2]),
        (Iterable[int], [1, 2]),
        (Annotated[int, msgspec.Meta(ge=0)], 3),
        (str | int | None, 5),
        (Slug, Slug("a-b")),
    ],
)
def test_values_come_back_as_their_annotation_says(annotation: Any, value: Any) -> None:
    args, kwargs = roundtrip(takes(annotation), value)
    assert args == []
    assert kwargs == {"value": value}
    assert type(kwargs["value"]) is type(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(JSON, st.dictionaries(st.text(min_size=1), JSON, max_size=4))
def test_any_json_comes_back_the_same(value: Any, more: dict[str, Any]) -> None:
    def fn(first: Any, /, **rest: Any) -> None: ...

    more.pop("first", None)
    more.pop("*", None)
    assert roundtrip(fn, value, **more) == ([value], more)


def everything(a: int, /, b: int, c: int = 3, *rest: str, d: bool, e: int = 5, **more: float) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        ((1, 2), {"d": True}, {"a": 1, "b": 2, "d": True}),
        ((1,), {"b": 2, "d": True}, {"a": 1, "b": 2, "d": True}),
        ((1, 2, 4, "x", "y"), {"d": True}, {"a": 1, "b": 2, "c": 4, "*": ["x", "y"], "d": True}),
        ((1, 2), {"d": True, "e": 6, "z": 0.5}, {"a": 1, "b": 2, "d": True, "e": 6, "z": 0.5}),
    ],
)
def test_a_call_is_one_object_by_name_and_becomes_the_same_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], stored: dict[str, Any]
) -> None:
    signature = Signature.of(everything)
    raw, _ = signature.encode(signature.bind(args, kwargs), max_bytes=MAX)
    assert decode_json(raw) == stored
    called: list[Any] = []

    def spy(a: int, /, b: int, c: int = 3, *rest: str, d: bool, e: int = 5, **more: float) -> None:
        called.append((a, b, c, rest, d, e, more))

    again, named = signature.decode(raw)
    spy(*again, **named)
    spy(*args, **kwargs)
    assert called[0] == called[1]


def plain(customer: str, to: str, retries: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, r"misses 'customer', 'to'"),
        (("a",), {}, r"misses 'to'"),
        (("a", "b", 1, 2), {}, r"takes 3 positional arguments, got 4"),
        (("a",), {"customer": "b", "to": "c"}, r"'customer' twice"),
        (("a", "b"), {"tto": "c"}, r"no parameter 'tto'.*did you mean 'to'"),
        (("a", "b"), {"*": [1]}, r"no further positional"),
    ],
)
def test_a_call_that_does_not_fit_names_the_parameter(args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        Signature.of(plain).bind(args, kwargs)


def test_a_positional_only_parameter_is_refused_by_name() -> None:
    with pytest.raises(InvalidArguments, match="by position only"):
        Signature.of(everything).bind((), {"a": 1, "b": 2, "d": True})


def test_defaults_are_not_stored() -> None:
    assert Signature.of(plain).bind(("a", "b"), {}) == {"customer": "a", "to": "b"}


def test_partial_binding_accepts_what_is_missing_but_nothing_unknown() -> None:
    signature = Signature.of(plain)
    assert signature.bind((), {}, partial=True) == {}
    assert signature.bind((), {"to": "b"}, partial=True) == {"to": "b"}
    with pytest.raises(InvalidArguments, match="no parameter"):
        signature.bind((), {"x": 1}, partial=True)


def test_by_name_takes_one_object() -> None:
    signature = Signature.of(plain)
    assert signature.bind_named({"customer": "a", "to": "b"}) == {"customer": "a", "to": "b"}
    for wrong, says in [
        ([], "pass one object"),
        ({1: 2}, "have the key 1"),
        ({"customer": "a"}, "misses 'to'"),
        ({"customer": "a", "to": "b", "x": 1}, "no parameter 'x'"),
    ]:
        with pytest.raises(InvalidArguments, match=says):
            signature.bind_named(wrong)  # type: ignore[arg-type]  # what untyped callers pass
    with pytest.raises(InvalidArguments, match="list of further arguments"):
        Signature.of(everything).bind_named({"*": 3})


def test_a_task_known_by_name_takes_any_object() -> None:
    signature = Signature.open("report.make")
    values = signature.bind_named({"a": 1, "b": [None], "*": [2]})
    assert decode_json(signature.encode(values)[0]) == values
    assert signature.bind_named({}) == {}


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (str, 42, r"value of fn\(\) does not fit: Expected `str`, got `int`"),
        (int, "42", r"Expected `int`"),
        (int, True, r"Expected `int`, got `bool`"),
        (list[int], [1, "x"], r"value\[1\]"),
        (Order, {"id": "x"}, r"value\.id"),
        (User, {"name": "x", "born": "never"}, r"born"),
        (Literal["a"], "b", r"Invalid enum value"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, r">= 0"),
        (None, 1, r"Expected `null`"),
    ],
)
def test_a_value_of_another_type_is_refused_at_the_door(annotation: Any, value: Any, says: str) -> None:
    signature = Signature.of(takes(annotation))
    signature.label = "fn"
    with pytest.raises(InvalidArguments, match=says):
        signature.encode({"value": value}, max_bytes=MAX)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"3", b"\xff", b'{"value":{}}', b'{"valu":1}', b"[" * 100_000])
def test_stored_bytes_that_do_not_fit_are_refused_not_raised_raw(raw: bytes) -> None:
    signature = Signature.of(takes(int))
    with pytest.raises(InvalidArguments):
        signature.decode(raw)
    with pytest.raises(InvalidArguments):
        signature.decode(raw, left(Input()))


def test_an_unknown_argument_in_stored_bytes_is_named() -> None:
    with pytest.raises(InvalidArguments, match=r"no parameter 'too'.*did you mean 'to'"):
        Signature.of(plain).decode(b'{"customer":"a","to":"b","too":1}')


def test_a_missing_argument_in_stored_bytes_is_named() -> None:
    with pytest.raises(InvalidArguments, match="misses 'value'"):
        Signature.of(takes(int)).decode(b"{}")


class Loop:
    def __init__(self) -> None:
        self.me = self


def looping() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), r"value is a object"),
        ({"a": [1, {"b": socket.socket}]}, r"value\.a\[1\]\.b is a type"),
        ([Point(1), Size(object(), 2)], r"value\[1\]\.w is a object"),  # type: ignore[arg-type]  # what untyped callers pass
        (Order(object(), [], ORDER.at), r"value\.id is a object"),  # type: ignore[arg-type]  # what untyped callers pass
        (lambda: None, r"value is a function"),
        (looping(), r"^value contains itself"),
        ({"odd": Odd.thing}, r"value\.odd\.value is a object"),
        ("\ud800", r"half a character"),
        ({"deep": {"\udfff": 1}}, r"value\.deep"),
        (b"abc", r"value is bytes.*annotate"),
        ([{"k": bytearray(b"a")}], r"value\[0\]\.k is bytearray"),
        (float("nan"), r"value is nan"),
        ({"x": (float("inf"),)}, r"value\.x\[0\] is inf"),
        (Size(float("-inf"), 2), r"value\.w is -inf"),  # type: ignore[arg-type]  # what untyped callers pass
        ([Point(float("nan"))], r"value\[0\]\.x is nan"),  # type: ignore[arg-type]  # what untyped callers pass
        ({"deep": {1: "a", "1": "b"}}, r"value\.deep has the keys 1 and '1'"),
        ({1.5: "a", "1.5": "b"}, r"value has the keys 1\.5 and '1\.5'"),
        (Scored(score=float("inf")), r"value: Scored\.score is inf"),
        (Login(password=pydantic.SecretStr("hunter2")), r"value: Login changes when it is stored"),
        ({(1, 2): 3}, r"value is a dict"),
        (iter([1]), r"value is a list_iterator"),
    ],
)
def test_what_has_no_stored_form_is_refused_with_its_place(value: Any, says: str) -> None:
    with pytest.raises(NotSerialisable, match=says) as caught:
        Signature.of(takes(Any)).encode({"value": value}, max_bytes=MAX)
    assert caught.value.fix


def test_bytes_for_a_text_parameter_are_refused_though_base64_would_fit() -> None:
    with pytest.raises(NotSerialisable, match="bytes"):
        Signature.of(plain).encode({"customer": b"acme", "to": "b"}, max_bytes=MAX)


def test_the_size_limit_names_size_and_fix_and_is_exact() -> None:
    signature = Signature.of(takes(str))
    value = {"value": "x" * 100}
    size = len(signature.encode(value, max_bytes=MAX)[0])
    assert signature.encode(value, max_bytes=size)
    with pytest.raises(PayloadTooLarge, match=rf"{size:,} bytes, over {size - 1:,}.*id or a URL"):
        signature.encode(value, max_bytes=size - 1)


def test_fifty_megabytes_are_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        Signature.of(takes(str)).encode({"value": "x" * 50_000_000}, max_bytes=MAX)


def sloppy(name: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  as people write it


def test_a_default_of_none_makes_none_welcome() -> None:
    assert roundtrip(sloppy, None) == ([], {"name": None})


def later(order: Later) -> None: ...


@dataclass
class Later:
    n: int


def ghost(value: Unknown) -> None: ...


def torn(value: Order | Line) -> None: ...


def test_a_class_defined_further_down_is_found() -> None:
    assert roundtrip(later, Later(1)) == ([], {"order": Later(1)})


def test_an_annotation_that_cannot_be_resolved_waits_until_use_then_says_so() -> None:
    signature = Signature.of(ghost)
    signature.prepare()
    with pytest.raises(InvalidTask, match=r"'Unknown' of 'value' in ghost\(\) cannot be resolved"):
        signature.encode({"value": 1}, max_bytes=MAX)


def test_an_annotation_that_json_cannot_tell_apart_is_refused_at_declaration() -> None:
    with pytest.raises(InvalidTask, match=r"'value' of torn\(\)"):
        Signature.of(torn).prepare()


def test_injected_parameters_are_no_part_of_the_signature() -> None:
    def fn(a: int, db: Unknown, b: int = 0) -> None: ...

    signature = Signature.of(fn, injected=frozenset({"db"}))
    assert list(signature.parameters) == ["a", "b"]
    assert signature.bind((1, 2), {}) == {"a": 1, "b": 2}
    assert signature.decode(b'{"a":1,"b":2}') == ([], {"a": 1, "b": 2})


def test_wrapped_partial_and_callable_objects_have_signatures_too() -> None:
    @wraps(later)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    class Handler:
        def __call__(self, order: Later) -> None: ...

    for fn in (wrapper, partial(later), Handler()):
        assert roundtrip(fn, Later(2)) == ([], {"order": Later(2)})


A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def join(first: Point, all: list[Point], note: str) -> None: ...


def left(*inputs: Input) -> Given:
    """What parents A, B, … left."""
    after = (A, B, C)[: len(inputs)]
    return Given(dict(zip(after, inputs, strict=True)), after)


def test_results_of_parents_are_rebuilt_like_other_arguments() -> None:
    signature = Signature.of(join)
    raw, parents = signature.encode({"first": Ref(A), "all": [Ref(A), Ref(B)], "note": "x"}, max_bytes=MAX)
    assert parents == (A, B)
    assert decode_json(raw)["first"] == {"$job": 0}
    both = left(Input(result=b'{"x":1}'), Input(result=b'{"x":2,"y":3}'))
    assert signature.decode(raw, both) == ([], {"first": Point(1), "all": [Point(1), Point(2, 3)], "note": "x"})


def test_a_result_that_does_not_fit_is_refused() -> None:
    signature = Signature.of(join)
    raw, _ = signature.encode({"first": Ref(A), "all": [], "note": "x"}, max_bytes=MAX)
    with pytest.raises(InvalidArguments, match="first"):
        signature.decode(raw, left(Input(result=b"7")))


def test_a_result_comes_as_exactly_as_it_was_stored() -> None:
    signature = Signature.of(takes(Any))
    raw, _ = signature.encode({"value": {"deep": [Ref(A)]}})
    decoded = signature.decode(raw, left(Input(result=b'{"n":18446744073709551615,"f":1.25e-300}')))
    assert decoded == ([], {"value": {"deep": [{"n": 18446744073709551615, "f": 1.25e-300}]}})


def test_a_failed_parent_is_passed_as_it_is_and_what_is_beside_it_is_rebuilt() -> None:
    signature = Signature.of(join)
    raw, _ = signature.encode({"first": Ref(A), "all": [Ref(A), Ref(B)], "note": "x"}, max_bytes=MAX)
    _, kwargs = signature.decode(raw, left(Input(result=b'{"x":1}'), Input(failed="boom")))
    assert kwargs["first"] == Point(1)
    assert kwargs["all"] == [Point(1), ParentFailed(id_text(B), "boom")]


@pytest.mark.parametrize(
    ("kind", "value", "rebuilt"),
    [
        (Point, Ref(B), ParentFailed(id_text(B), "boom")),
        (Point | ParentFailed, Ref(A), Point(1)),
        (Point | ParentFailed, Ref(B), ParentFailed(id_text(B), "boom")),
        (ParentFailed, Ref(B), ParentFailed(id_text(B), "boom")),
        (ParentFailed, Ref(A), {"x": 1}),
        (list[Point | ParentFailed], [Ref(A), Ref(B)], [Point(1), ParentFailed(id_text(B), "boom")]),
        (list[Point | ParentFailed | None], [Ref(A), None], [Point(1), None]),
        (list[list[Point]], [[Ref(A)], [Ref(B)]], [[Point(1)], [ParentFailed(id_text(B), "boom")]]),
        (dict[str, Point], {"a": Ref(A), "b": Ref(B)}, {"a": Point(1), "b": ParentFailed(id_text(B), "boom")}),
        (tuple[Point, ...], (Ref(A), Ref(B)), [Point(1), ParentFailed(id_text(B), "boom")]),
        (Any, {"deep": [Ref(A), 7, Ref(B)]}, {"deep": [{"x": 1}, 7, ParentFailed(id_text(B), "boom")]}),
    ],
)
def test_an_annotation_may_say_that_parents_can_fail(kind: Any, value: Any, rebuilt: Any) -> None:
    signature = Signature.of(takes(kind))
    raw, parents = signature.encode({"value": value}, max_bytes=MAX)
    inputs = {A: Input(result=b'{"x":1}'), B: Input(failed="boom")}
    decoded = signature.decode(raw, Given({id: inputs[id] for id in parents}, parents))
    assert decoded == ([], {"value": rebuilt})


def test_what_is_beside_a_failed_parent_must_fit_too() -> None:
    signature = Signature.of(join)
    raw, _ = signature.encode({"first": Ref(A), "all": [Ref(B), Ref(C)], "note": "x"}, max_bytes=MAX)
    with pytest.raises(InvalidArguments):
        signature.decode(raw, left(Input(result=b'{"x":1}'), Input(failed="boom"), Input(result=b'"no point"')))


def test_what_does_not_wait_for_a_parent_is_checked_at_once() -> None:
    with pytest.raises(InvalidArguments, match="note"):
        Signature.of(join).encode({"first": Ref(A), "all": [], "note": 7}, max_bytes=MAX)


def test_thousands_of_results_take_a_few_bytes_of_the_arguments() -> None:
    ids = [number.to_bytes(16, "big") for number in range(20_000)]
    raw, parents = Signature.of(takes(list[int])).encode({"value": [Ref(id) for id in ids]}, max_bytes=100)
    assert (raw, parents) == (b'{"value":{"$jobs":[0,20000]}}', tuple(ids))


@pytest.mark.parametrize("look_alike", [{"$job": 0}, {"$jobs": [0, 1]}, Loose(data={"$job": 1})])
def test_data_that_looks_like_a_reference_is_refused_beside_one(look_alike: Any) -> None:
    def fn(value: Any, parent: Any) -> None: ...

    signature = Signature.of(fn)
    assert signature.encode({"value": [look_alike], "parent": 1})
    with pytest.raises(InvalidArguments, match="rename that key"):
        signature.encode({"value": [look_alike], "parent": Ref(A)})


def test_a_handle_has_no_place_in_a_result() -> None:
    with pytest.raises(NotSerialisable, match="the result\\[0\\]: a Ref is not a value"):
        Signature.open("work").encode_result([Ref(A)])


def test_a_class_that_json_schema_does_not_know_has_a_schema_all_the_same() -> None:
    for kind in (object, Slug):
        assert Signature.of(takes(kind)).schema()["required"] == ["value"]


def test_the_schema_says_what_is_needed() -> None:
    schema = Signature.of(everything).schema()
    assert schema["required"] == ["a", "b", "d"]
    assert schema["properties"]["b"] == {"type": "integer"}
    assert schema["additionalProperties"] is True
    strict = Signature.of(join).schema()
    assert strict["additionalProperties"] is False
    assert strict["properties"]["first"] == {"$ref": "#/$defs/Point"}
    assert strict["$defs"]["Point"]["type"] == "object"
    assert Signature.of(takes(User)).schema()["properties"]["value"]["title"] == "User"


def makes_order() -> Order:
    raise NotImplementedError


def makes_bytes() -> bytes:
    raise NotImplementedError


async def makes_users() -> list[User]:
    raise NotImplementedError


def makes_anything(): ...  # type: ignore[no-untyped-def]  # what is not annotated comes back as JSON


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (makes_order, ORDER),
        (makes_bytes, b"\xff"),
        (makes_users, [User(name="a", born=date(2000, 1, 1))]),
        (makes_anything, {"a": [1]}),
        (makes_order, None),
    ],
)
def test_results_come_back_as_the_return_annotation_says(fn: Callable[..., Any], value: Any) -> None:
    signature = Signature.of(fn)
    assert signature.decode_result(signature.encode_result(value)) == value


def test_a_result_of_another_shape_is_still_a_result() -> None:
    signature = Signature.of(makes_order)
    assert signature.decode_result(signature.encode_result({"partial": True})) == {"partial": True}
    assert Signature.of(ghost).decode_result(b"1") == 1


def test_results_have_their_own_limits() -> None:
    assert Signature.open("work").encode_result(None) is None
    with pytest.raises(NotSerialisable, match=r"the result\.loss\[1\] is nan"):
        Signature.open("work").encode_result({"loss": [0.5, float("nan")]})
    with pytest.raises(NotSerialisable, match=r"the result has the keys 1 and '1'"):
        Signature.open("work").encode_result({1: "a", "1": "b"})
    with pytest.raises(PayloadTooLarge, match="the result takes 12 bytes"):
        Signature.open("work").encode_result("x" * 10, 11)
    with pytest.raises(NotSerialisable, match=r"the result\.a is bytes"):
        Signature.open("work").encode_result({"a": b""})
    with pytest.raises(NotSerialisable, match=r"the result\[0\] is a object"):
        Signature.open("work").encode_result([object()])


def test_canonical_json_sorts_what_has_no_order() -> None:
    assert (
        canonical({"b": {"y": 1, "x": {3, 1, 2}}, "a": Point(1, 2)}) == b'{"a":{"x":1,"y":2},"b":{"x":[1,2,3],"y":1}}'
    )
    assert canonical(b'{"b": 1, "a": [2, 1]}') == b'{"a":[2,1],"b":1}'
    with pytest.raises(NotSerialisable, match="a is a object"):
        canonical({"a": object()})
    with pytest.raises(InvalidArguments, match="not JSON"):
        canonical(b"{")
