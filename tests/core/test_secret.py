"""Secrets in signatures: what they show of themselves, how they are stored, and which rules they mean."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from limpet import Limit, Secret
from limpet.core.errors import InvalidArguments, InvalidTask, NotSerialisable
from limpet.core.jobs.options import PLAIN
from limpet.core.redaction.rule import MASK, parse_rules
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.payload import Signature
from limpet.core.tasks.task import TaskSpec, build_job


class Card(msgspec.Struct, rename="camel"):
    card_number: Secret[str]
    holder: str = ""


@dataclass
class Node:
    key: Secret[str]
    below: list[Node]


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]} {secret!s}"
    assert secret.get_secret_value() == "hunter2"
    assert (secret == Secret("hunter2"), secret == Secret("other"), secret == "hunter2") == (True, False, False)
    assert {Secret("a"), Secret("a")} == {Secret[str](Secret("a"))}
    assert copy.deepcopy(secret) == secret == pickle.loads(pickle.dumps(secret))
    assert not Secret("")
    with pytest.raises(AttributeError, match="get_secret_value"):
        secret.encode()  # type: ignore[attr-defined]  # what a person tries first


def pay(
    pin: Secret[str], card: Card, keys: dict[str, Secret[int]], node: Node, *more: Secret[str], note: str = ""
) -> Secret[str]:
    return pin


def many(**keys: Secret[str]) -> list[Card]:
    return [Card(key) for key in keys.values()]


def deep(node: Node) -> None: ...
def plain(to: str) -> str:
    return to


@pytest.mark.parametrize(
    ("fn", "rules"),
    [
        (many, ("args.*", "result.cardNumber")),
        (deep, ("key",)),
        (plain, ()),
        (pay, ("args.pin", "args.card.cardNumber", "args.keys.*", "key", r"args.\*", "result")),
    ],
)
def test_annotations_mean_rules(fn: Callable[..., Any], rules: tuple[str, ...]) -> None:
    assert Signature.of(fn).secrets == rules


def test_a_secret_is_stored_as_its_value_and_comes_back_as_a_secret() -> None:
    signature = Signature.of(pay)
    node = Node(Secret("k"), [])
    values = signature.bind((Secret("p"), Card(Secret("c")), {"a": Secret(1)}, node, "m"), {})
    raw, _ = signature.encode(values)
    assert msgspec.json.decode(raw)["pin"] == "p"
    args, kwargs = signature.decode(raw)
    found = (*args, *kwargs.values())
    assert found[:3] == (Secret("p"), Card(Secret("c")), {"a": Secret(1)})
    assert signature.decode(signature.encode({**values, "pin": "p"})[0]) == (args, kwargs)
    with pytest.raises(InvalidArguments, match="Expected `str`, got `int`") as refused:
        signature.encode({**values, "pin": 123_456_789})
    assert "123456789" not in str(refused.value)
    assert signature.decode_result(signature.encode_result(Secret("r"))) == Secret("r")
    assert signature.schema()["properties"]["pin"] == {"type": "string", "format": "password", "writeOnly": True}


def test_a_secret_without_an_annotation_is_refused() -> None:
    def loose(x: Any) -> Any: ...

    signature = Signature.of(loose)
    for value in (Secret("s"), [Secret("s")], {"a": Card(Secret("s"))}):
        with pytest.raises(NotSerialisable, match="is a Secret, and no annotation says so"):
            signature.encode({"x": value})
        with pytest.raises(NotSerialisable, match="the result"):
            signature.encode_result(value)


def test_a_mask_is_not_stored_in_place_of_a_value() -> None:
    signature = Signature.of(plain)
    with pytest.raises(InvalidArguments, match="in place of a hidden value"):
        signature.encode({"to": MASK})
    signature.encode({"to": f"it failed: {MASK}"})  # what a hook tells of a failure


@pytest.mark.parametrize(
    "options", [{"tenant": "pin"}, {"unique": "login:{pin}"}, {"limits": [Limit("of:{card.holder}", rate="1/s")]}]
)
def test_keys_made_of_hidden_arguments_are_refused_at_declaration(options: Any) -> None:
    with pytest.raises(InvalidTask, match="hides"):
        TaskSpec.declare(pay, {}, parse_rules(["args.card"]), **options)


def test_keys_that_hold_a_hidden_argument_are_refused_at_enqueue() -> None:
    def login(pin: Secret[str]) -> None: ...

    spec = TaskSpec.declare(login, name="login", tenant=lambda values: f"of {values['pin']}")
    for options in (PLAIN, PLAIN.replace(tags=["x-hunter2"]), PLAIN.replace(unique="hunter2", tenant="acme")):
        with pytest.raises(InvalidArguments, match="holds an argument that is hidden") as refused:
            build_job(spec, {"pin": "hunter2"}, options, id=bytes(16))
        assert "hunter2" not in str(refused.value)
    job, _ = build_job(spec, {"pin": "hunter2"}, PLAIN.replace(tenant="acme", unique=True), id=bytes(16))
    assert job.lane.tenant == "acme"


def test_a_declaration_carries_the_rules_of_its_task() -> None:
    spec = TaskSpec.declare(plain, redact=["args.to"], aliases=["old"])
    assert Declaration.of(spec).redact == ("args.to",)
    assert Declaration.of(spec).spec().redact == spec.redact
    assert [twin.own_rules for twin in spec.under_aliases()] == [spec.own_rules]
