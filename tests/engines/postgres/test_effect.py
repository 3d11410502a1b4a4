"""PostgreSQL reads an effect as core has written it, and lays its alternatives over it as core does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, fields, replace

from limpet.core.endings.effect import BLANK, COUNT, MADE, STOPPED, Effect, counted, silent
from limpet.core.endings.transition import Failure
from limpet.stores import codes
from limpet.stores.postgres.settle import effect_json, new_lane
from tests.core.test_effect import EFFECTS, ID
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.servers.installations import POSTGRES

READ = "SELECT to_jsonb(lp.to_effect(%s::jsonb))"
RESOLVED = """
SELECT to_jsonb(lp.resolved(
  jsonb_populate_record(NULL::lp.running, %s::jsonb || jsonb_build_object('id', %s::bytea)), lp.to_effect(%s::jsonb)
))
"""
NAMES = ("w1", 'a "quoted" \\ one', "it's", "{count}", "{session}", "ö\n\x1f", "'; DROP SCHEMA x; --")


@pytest.fixture(scope="module")
def schema() -> Iterator[Schema]:
    with fresh_schema(POSTGRES, rooms="99") as schema:
        yield schema


def fields_of(effect: Effect) -> dict[str, Any]:
    """All of them by name, but for the result, which goes beside it."""
    said: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asdict(effect)))
    if effect.lane is not None:
        said["lane"] = new_lane(effect.lane)
    return {name: value for name, value in said.items() if name != "result"}


def json_of(effect: Effect) -> str:
    return effect_json(replace(effect, result=None)).decode()


def test_the_type_has_the_fields_of_an_effect(schema: Schema) -> None:
    ((read,),) = schema.ask(READ, "{}")
    assert read.keys() == {field.name for field in fields(Effect)} - {"result"}
    assert {name: value for name, value in read.items() if value is not None} == BLANK


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_is_read_as_core_wrote_it(schema: Schema, name: str) -> None:
    assert schema.ask(READ, json_of(EFFECTS[name])) == [(fields_of(EFFECTS[name]),)]


def resolved(schema: Schema, effect: Effect, **head: object) -> dict[str, Any]:
    """What a running job with this head comes to: there is no lane, no policy and no event but what a test stores."""
    said = msgspec.json.encode({"lane": 1, "lost": 0, "flags": 0, **head}).decode()
    ((found,),) = schema.ask(RESOLVED, said, ID, json_of(effect))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", EFFECTS)
def test_a_job_that_was_asked_to_stop_gets_cores_alternative_before_any_other(schema: Schema, name: str) -> None:
    effect = EFFECTS[name]
    expected = effect.otherwise(STOPPED[effect.if_cancelling])
    assert resolved(schema, effect, flags=codes.CANCELLING, lost=99) == fields_of(expected)


def test_a_job_that_was_lost_too_often_is_told_how_often(schema: Schema) -> None:
    effect = EFFECTS["lose"]
    poison = effect.otherwise(effect.if_lost_too_often)
    assert poison.failure is not None
    assert resolved(schema, effect, lost=8) == fields_of(effect)
    assert resolved(schema, effect, lost=9) == fields_of(replace(poison, failure=counted(poison.failure, 10)))


def test_a_gate_of_others_gets_cores_alternative(schema: Schema) -> None:
    effect = EFFECTS["hold"]
    assert resolved(schema, effect) == fields_of(effect.otherwise(effect.if_foreign_gate))


@pytest.mark.parametrize("event", ["stop", "another"])
def test_an_event_that_came_before_gets_cores_alternative(schema: Schema, event: str) -> None:
    effect = EFFECTS["wait"]
    schema.run("DELETE FROM lp.note")
    schema.ask("INSERT INTO lp.note (job, kind, name, body) VALUES (%s, 'event', %s, '') RETURNING 1", ID, event)
    expected = effect.otherwise(effect.if_signalled) if event == "stop" else effect
    assert resolved(schema, effect, flags=codes.NOTES) == fields_of(expected)


@pytest.mark.parametrize("session", NAMES)
def test_a_silent_session_is_named(schema: Schema, session: str) -> None:
    assert schema.ask("SELECT to_jsonb(lp.silent_effect(%s))", session) == [(fields_of(silent(session)),)]


@pytest.mark.parametrize(
    "text", ["", "no place", COUNT, f"{COUNT}!", f"a {COUNT} b {COUNT} times", "\\1 {count}", "{coun"]
)
@pytest.mark.parametrize("number", ["7", "\\1&"])
def test_the_last_place_is_filled_in(schema: Schema, text: str, number: str) -> None:
    expected = counted(Failure("lost", "x", text), 7).message.replace("7", number)
    assert schema.ask("SELECT lp.filled(%s, %s, %s)", text, COUNT, number) == [(expected,)]


def test_every_effect_that_core_has_made_has_a_name_in_sql(schema: Schema) -> None:
    for name, effect in MADE.items():
        assert schema.ask(f"SELECT to_jsonb(lp.to_effect(:EFFECT_{name.upper()}))") == [(fields_of(effect),)]
