"""What is kept of an exception fits every engine, and failures of one origin share a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.endings.failure import MESSAGE_CHARS, TRACEBACK_BYTES, failure_of


def caught(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def refuse(text: str, kind: type[Exception] = ValueError) -> None:
    raise kind(text)


def refuse_elsewhere(text: str) -> None:
    raise ValueError(text)


def cause(text: str, call: Callable[[str], None] = refuse) -> str:
    return failure_of(caught(lambda: call(text)), "transient").cause


def test_a_failure_names_type_message_and_place() -> None:
    found = failure_of(caught(lambda: refuse("bad")), "permanent")
    assert (found.kind, found.type, found.message) == ("permanent", "ValueError", "bad")
    assert "in refuse" in found.traceback
    assert found.traceback.endswith("ValueError: bad\n")
    assert failure_of(json.JSONDecodeError("x", "", 0), "transient").type == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("order 17 not found", "order 42 not found"),
        ("user 'ann' is unknown", "user 'bob' is unknown"),
        ('no file "a.pdf"', 'no file "b.pdf"'),
        ("object at 0x7f00deadbeef", "object at 0x7f00cafebabe"),
        ("job 018f-7c2e-4e11 failed", "job 99af-7c2e-4e22 failed"),
        (
            "id 018bcfe5-687b-7000-8000-0123456789ab",
            "id 99999999-687b-7fff-9000-ba9876543210",
        ),
        ("took 1.5 s", "took 12.25 s"),
        ("at 10:00:01", "at 23:59:59"),
        ("commit deadbeef1", "commit 0badf00d2"),
    ],
)
def test_values_in_the_message_do_not_part_failures(one: str, two: str) -> None:
    assert cause(one) == cause(two)


def test_other_words_types_and_places_do() -> None:
    causes = {
        cause("order not found"),
        cause("order was refused"),
        cause("order not found", refuse_elsewhere),
        cause("order not found", lambda text: refuse(text, RuntimeError)),
    }
    assert len(causes) == 4


def test_frames_of_libraries_do_not_part_failures() -> None:
    def parse(text: str) -> None:
        json.loads(text)

    found = failure_of(caught(lambda: parse("{")), "transient")
    assert "raw_decode" in found.traceback
    assert found.cause == failure_of(caught(lambda: parse("[1, {")), "transient").cause
    assert found.cause != failure_of(caught(lambda: json.loads("{")), "transient").cause


def test_a_long_message_is_cut() -> None:
    found = failure_of(ValueError("x" * 10_000), "transient")
    assert len(found.message) == MESSAGE_CHARS
    assert found.message.endswith("…")


def test_a_long_traceback_keeps_its_end() -> None:
    def chained(n: int) -> None:
        try:
            if n:
                chained(n - 1)
        finally:
            refuse(f"level {n} {'ü' * 1_500}")

    found = failure_of(caught(lambda: chained(8)), "transient")
    assert len(found.traceback.encode()) <= TRACEBACK_BYTES
    assert found.traceback.startswith("… (cut)\n")
    assert found.traceback.endswith("ü\n")
    assert "level 8" in found.traceback
    assert "level 0" not in found.traceback


def test_endless_recursion_is_kept_small() -> None:
    def loop(n: int) -> int:
        return loop(n + 1) + 1

    found = failure_of(caught(lambda: loop(0)), "transient")
    assert found.type == "RecursionError"
    assert len(found.traceback.encode()) <= TRACEBACK_BYTES


def test_what_no_engine_can_store_is_written_out() -> None:
    found = failure_of(ValueError("a\x00b\ud800c"), "transient")
    assert found.message == "a\\x00b\\ud800c"
    found.traceback.encode()
    assert "\x00" not in found.traceback


def test_an_exception_that_cannot_speak_is_still_recorded() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    found = failure_of(caught(lambda: refuse("x", Mute)), "transient")
    assert found.message == "(its message could not be read: RuntimeError)"
    assert found.cause


def test_an_exception_that_was_never_raised_is_recorded_too() -> None:
    found = failure_of(ValueError("x"), "transient")
    assert found.traceback == "ValueError: x\n"
    assert found.cause


def test_names_that_no_engine_can_store_are_written_out() -> None:
    odd = type("Odd", (Exception,), {"__module__": "caf\udce9"})
    code = compile("def fail(): raise ValueError('x')", "/srv/caf\udce9.py", "exec")
    space: dict[str, Any] = {}
    exec(code, space)
    assert failure_of(odd("x"), "transient").type == "caf\\udce9.Odd"
    found = failure_of(caught(space["fail"]), "transient")
    found.traceback.encode()
    assert found.cause
