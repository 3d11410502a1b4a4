"""Names in Lua files: each stands for a key, a place or a number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from limpet.core.endings.effect import BLANK, MADE, STOPPED
from limpet.stores.redis.fields import LAYOUTS, RECORD, VALUES, Bytes
from limpet.stores.redis.keys import KEYS
from limpet.stores.redis.names import UnknownName, resolve
from tests.engines.redis.audit import names_of
from tests.servers.flavours import REDIS
from tests.servers.redis import shared


@pytest.mark.parametrize(
    ("written", "stands_for"),
    [
        ("K.jobs", 'P .. "J"'),
        ("K.ready .. lane.id", 'P .. "L:" .. lane.id'),
        ("sub(raw, RECORD.lane)", "sub(raw, 29, 36)"),
        ("sub(raw, RECORD.lost_to_policy)", "sub(raw, 7, 44)"),
        ("byte(raw, RECORD.state)", "byte(raw, 2)"),
        ("sub(raw, RECORD.rest)", "sub(raw, 57)"),
        ("sub(raw, RECORD.finished_to_rest)", "sub(raw, 51)"),
        ("base.n6(raw, RECORD.seq.at)", "base.n6(raw, 11)"),
        ("struct.pack(RECORD.version_to_held.format, 1)", 'struct.pack(">BBHHHH", 1)'),
        ("struct.unpack(ITEM.format, item)", 'struct.unpack(">I6I6c16", item)'),
        ("#raw < RECORD.size", "#raw < 56"),
        ("class[CLASS.task]", "class[2]"),
        ("r.rare[ADDED.reason]", 'r.rare["r"]'),
        ("r.state == READY", "r.state == 2"),
        ("HAS(r.flags, RARE)", "(r.flags % 128 >= 64)"),
        ("HAS(byte(raw, LANE.flags), KEYED)", "(byte(raw, 26) % 2 >= 1)"),
        ("BODY + NOTES", "256 + 8"),
        ("LANE_WAITS .. key", '"w" .. key'),
        ("local STANDING, notes", "local STANDING, notes"),
        (
            "MADE.success",
            '({ ["state"] = 4, ["word"] = "succeeded", ["record"] = "again", ["blame"] = true, ["verdict"] = "ok", '
            '["if_cancelling"] = "" })',
        ),
    ],
)
def test_a_name_stands_for_what_the_server_knows(written: str, stands_for: str) -> None:
    assert resolve(written) == stands_for


@pytest.mark.parametrize(
    "wrong",
    ["K.jbos", "RECORD.lain", "CLASS.tsak", "ADDED.raeson", "HAS(flags, KIDDS)", "HAS(f(g(x)), KIDS)", "MADE.succes"],
)
def test_a_name_that_stands_for_nothing_is_refused_when_the_script_is_built(wrong: str) -> None:
    with pytest.raises(UnknownName, match=r"see (keys|fields|core/endings/effect)\.py"):
        resolve(f"return {wrong}")


@pytest.mark.parametrize("name", ["blank", "stopped", *MADE])
def test_what_core_has_made_comes_to_the_server_as_it_is(name: str) -> None:
    made: Any = {"blank": BLANK, "stopped": STOPPED, **MADE}[name]
    found = msgspec.msgpack.decode(shared(REDIS).ask("EVAL", resolve(f"return cmsgpack.pack(MADE.{name})"), 0))
    assert without_none(found) == without_none(msgspec.to_builtins(made))


def without_none(value: Any) -> Any:
    """Lua has no empty map, and a field without a value is none."""
    if not isinstance(value, dict):
        return value
    return {name: without_none(each) for name, each in value.items() if each not in (None, {}, [])}


def test_names_of_values_and_of_layouts_do_not_meet() -> None:
    assert LAYOUTS.keys() & VALUES.keys() == set()
    flags = [VALUES[name] for name in ("KIDS", "WATCHED", "CANCELLING", "NOTES", "INPUTS", "BY_PARENT", "RARE")]
    assert flags == [1 << bit for bit in range(len(flags))]


def test_the_fields_of_a_layout_follow_each_other_without_a_gap() -> None:
    for name, layout in LAYOUTS.items():
        if isinstance(layout, Bytes):
            spans = [layout.span(field) for field in layout.fields]
            assert spans[0][0] == 0, name
            assert all(before[1] == after[0] for before, after in pairwise(spans)), name
    assert RECORD.reader("state", "seq").unpack(bytes(range(16))) == (1, 0x0A0B, 0x0C0D0E0F)


def test_no_two_keys_can_be_taken_for_each_other() -> None:
    found = {name: names_of(key.stored.encode() + (b"x" if key.per else b"")) for name, key in KEYS.items()}
    assert found == {name: [name] for name in KEYS}
