"""Messages of live events: they fit, say all that they were given, and what is none of ours is nothing."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.jobs.bulletin import MOST_BYTES, Bulletin, Counted, Moved, read_bulletin, write_bulletins
from limpet.core.jobs.state import STATES, State
from limpet.core.tasks.naming import MAX_NAME_CHARS

NAMES = st.text(min_size=1, max_size=MAX_NAME_CHARS)
SCOPES = st.tuples(NAMES, NAMES)
INSTANTS = st.integers(1_700_000_000_000, 1_900_000_000_000)
MOVED = st.builds(
    Moved,
    id=st.binary(min_size=16, max_size=16),
    scope=SCOPES,
    kind=st.sampled_from(["enqueued", "claimed", "succeeded"]),
    state=st.sampled_from(STATES),
    attempt=st.integers(0, 1_000),
    at_ms=INSTANTS,
)
COUNTED = st.builds(Counted, scope=SCOPES, state=st.sampled_from(STATES), count=st.integers(1, 1 << 40))


def read(texts: list[str]) -> list[Bulletin]:
    found = [read_bulletin(text) for text in texts]
    assert None not in found
    return [bulletin for bulletin in found if bulletin is not None]


@given(st.lists(MOVED | COUNTED, max_size=60), INSTANTS, st.integers(0, 9))
def test_all_is_said_in_messages_that_fit_and_have_numbers_in_order(
    news: list[Moved | Counted], at_ms: int, lost: int
) -> None:
    texts = write_bulletins("p", 7, news, at_ms, lost)
    assert all(len(text.encode()) <= MOST_BYTES for text in texts)
    found = read(texts)
    assert [bulletin.number for bulletin in found] == list(range(7, 7 + len(found)))
    assert [bulletin.lost for bulletin in found] == [lost] + [0] * (len(found) - 1)
    said = [each for bulletin in found for each in bulletin.news]
    assert sorted(said, key=repr) == sorted(news, key=repr)
    moved = [each for each in said if isinstance(each, Moved)]
    assert moved == [each for each in news if isinstance(each, Moved)], "changes keep their order"


def test_many_changes_of_few_tasks_share_a_message() -> None:
    ids = count()
    news = [Moved(next(ids).to_bytes(16), ("mail", "send"), "succeeded", State.succeeded, 1, 0) for _ in range(1_000)]
    assert len(write_bulletins("p", 1, news, 0, 0)) == 10


def test_the_longest_names_fit() -> None:
    name = "\U0001f980" * MAX_NAME_CHARS
    (text,) = write_bulletins(
        "p" * 12, 1 << 40, [Moved(b"\xff" * 16, (name, name), "suspended", State.dead, 9, 0)], 0, 0
    )
    assert len(text.encode()) < MOST_BYTES


@pytest.mark.parametrize(
    "text",
    ["", "hello", "{}", '["p"]', '["p",1,0,[],[["AAAA",0,"claimed","running",1,0]]]', '["p",1,0,[],[],[[1,"x",1]]]'],
)
def test_what_is_no_message_is_none(text: str) -> None:
    assert read_bulletin(text) is None
