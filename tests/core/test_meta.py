"""A job's meta: one small JSON object, beside what Limpet says there itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from limpet.core.errors import InvalidOption, NotSerialisable, PayloadTooLarge
from limpet.core.jobs.meta import MAX_META_BYTES, OURS, asked_bytes, asked_meta, meta_from, whole_meta, with_meta
from limpet.core.jobs.options import Options


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, b""),
        ({}, b""),
        ({"request": "r1"}, b'{"request":"r1"}'),
        ({"b": [1, None, {"c": 2.5}], "a": True}, b'{"a":true,"b":[1,null,{"c":2.5}]}'),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, b'{"at":"2026-01-01T00:00:00Z"}'),
    ],
)
def test_it_is_stored_as_canonical_json(value: object, stored: bytes) -> None:
    assert meta_from(value) == stored
    assert Options().replace(meta=value).meta == stored


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("r1", InvalidOption, "meta must be an object with texts as names, got 'r1'"),
        ([1], InvalidOption, r"got \[1\]"),
        ({1: "a"}, InvalidOption, "texts as names"),
        ({"flow": 1}, InvalidOption, "meta holds 'flow', which Limpet writes itself .*'my_flow'"),
        ({"key": object()}, NotSerialisable, "meta.key is a object, which has no stored form"),
        ({"key": {"deep": b"raw"}}, NotSerialisable, "meta.key.deep is bytes"),
        ({"key": float("nan")}, NotSerialisable, "meta.key is nan"),
        ({"key": "\udce9"}, NotSerialisable, "half a character"),
        ({"key": "x" * 5_000}, PayloadTooLarge, r"meta takes 5,010 bytes, over 4,096 \(keep it elsewhere"),
    ],
)
def test_what_cannot_be_stored_is_refused_where_it_is_said(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Options().replace(meta=value)


def test_the_limit_counts_what_is_stored() -> None:
    room = MAX_META_BYTES - len(b'{"k":""}')
    assert len(meta_from({"k": "x" * room})) == MAX_META_BYTES
    with pytest.raises(PayloadTooLarge, match="meta takes 4,097 bytes"):
        meta_from({"k": "x" * (room + 1)})


def test_what_limpet_says_and_what_was_asked_for_lie_beside_each_other() -> None:
    ours, asked = b'{"schedule":"s","tick":"t"}', b'{"request":"r1"}'
    both = with_meta(ours, asked)
    assert msgspec.json.decode(both) == whole_meta(both) == {"schedule": "s", "tick": "t", "request": "r1"}
    assert asked_meta(both) == {"request": "r1"}
    assert asked_bytes(both) == asked
    assert (with_meta(b"", asked), with_meta(ours, b""), with_meta(b"", b"")) == (asked, ours, b"")
    assert (asked_meta(ours), asked_bytes(ours)) == ({}, b"")


@pytest.mark.parametrize("raw", [b"", b"[1]", b"not json", b"null"])
def test_what_is_no_object_counts_as_nothing(raw: bytes) -> None:
    assert whole_meta(raw) == asked_meta(raw) == {}


def test_its_own_names_are_those_that_limpet_writes() -> None:
    assert {"flow", "schedule", "tick", "rerun_of"} == OURS
