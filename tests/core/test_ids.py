"""Job ids are uuid7: they grow, they never repeat, and their text comes back as the same bytes."""

from __future__ import annotations

import os
from threading import Barrier, Thread
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import IdMaker, id_bytes, id_text

NOW_MS = 1_700_000_000_123


@given(st.lists(st.integers(0, (1 << 48) - 2), min_size=1, max_size=50))
def test_ids_grow_even_when_the_clock_does_not(clock: list[int]) -> None:
    maker = IdMaker()
    made = [maker.make(now_ms) for now_ms in clock]
    assert made == sorted(set(made))


def test_an_id_is_a_uuid7_of_its_time() -> None:
    value = UUID(bytes=IdMaker().make(NOW_MS))
    assert value.version == 7
    assert value.variant == "specified in RFC 4122"
    assert value.int >> 80 == NOW_MS


def test_many_ids_in_one_millisecond_stay_near_it() -> None:
    made = IdMaker().make_many(20_000, NOW_MS)
    assert made == sorted(set(made))
    assert {raw[:6] for raw in made} == {NOW_MS.to_bytes(6, "big")}


def test_threads_that_meet_in_one_maker_never_get_the_same_id() -> None:
    maker, made, barrier = IdMaker(), [], Barrier(4)

    def work() -> None:
        barrier.wait()
        made.extend(maker.make_many(5_000, NOW_MS))

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000


def test_two_that_start_from_the_same_last_id_step_differently() -> None:
    one, two = IdMaker(), IdMaker()
    one.make(NOW_MS + 1_000)
    two.__dict__.update(one.__dict__)
    assert one.make(NOW_MS) != two.make(NOW_MS)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    maker = IdMaker()
    maker.make(NOW_MS)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, maker.make(NOW_MS))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 16) != maker.make(NOW_MS)
    os.close(read)
    os.close(write)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_from_the_clock_not_from_its_parents_last_id() -> None:
    maker = IdMaker()
    maker.make(NOW_MS + 60_000)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, maker.make(NOW_MS))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 16)[:6] == NOW_MS.to_bytes(6, "big")
    os.close(read)
    os.close(write)


@given(st.binary(min_size=16, max_size=16))
def test_text_comes_back_as_the_same_bytes(raw: bytes) -> None:
    assert id_bytes(id_text(raw)) == raw
    assert id_text(raw) == str(UUID(bytes=raw))


@pytest.mark.parametrize("text", ["", "42", "not-an-id", "0" * 31, None, 7])
def test_what_is_no_id_is_refused_by_name(text: object) -> None:
    with pytest.raises(InvalidOption, match="is not a job id") as caught:
        id_bytes(text)  # type: ignore[arg-type]  # what untyped callers pass
    assert repr(text) in str(caught.value)
