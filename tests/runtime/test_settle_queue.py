"""What has ended is settled in batches: of as many jobs as the engine says, and of one lease where it has many."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import Succeed
from limpet.runtime.settler import MOST_PER_CALL, SHARE, Notebook, SettleQueue

BATCH = 64
MANY = BATCH // SHARE  # jobs of one lease that are worth a call


def queued(*leases: tuple[int, int], batch: int = BATCH, by_lease: bool = True) -> SettleQueue:
    """A queue with ends of so many jobs of each lease, in order."""
    queue = SettleQueue(Notebook(), batch, by_lease=by_lease)
    for token, count in leases:
        for number in range(count):
            queue.put(Succeed(b"%d-%d" % (token, number), token))
    return queue


def taken(queue: SettleQueue) -> list[list[int]]:
    """The leases of the jobs of each batch, until nothing waits."""
    batches = []
    while queue.waiting:
        batches.append([each.token for each in queue.take()])
    assert queue.take() == []
    return batches


def test_a_batch_is_as_large_as_the_engine_says() -> None:
    assert [len(batch) for batch in taken(queued((1, 2 * BATCH + 1)))] == [BATCH, BATCH, 1]


def test_no_batch_is_larger_than_one_bounded_step() -> None:
    assert [len(batch) for batch in taken(queued((1, 2_001), batch=10**6))] == [MOST_PER_CALL, MOST_PER_CALL, 1]


def test_after_many_jobs_of_one_lease_those_of_another_begin_a_batch() -> None:
    assert taken(queued((1, MANY), (2, MANY + 1), (3, 1))) == [[1] * MANY, [2] * (MANY + 1), [3]]


def test_an_engine_to_which_leases_are_all_the_same_gets_full_batches() -> None:
    assert [len(batch) for batch in taken(queued((1, BATCH - 1), (2, BATCH), by_lease=False))] == [BATCH, BATCH - 1]


def test_few_jobs_of_many_leases_share_a_batch() -> None:
    assert taken(queued(*((token, 1) for token in range(10)))) == [list(range(10))]
    assert taken(queued((1, MANY - 1), (2, MANY - 1), (3, MANY), (4, 1))) == [
        [1] * (MANY - 1) + [2] * (MANY - 1) + [3] * MANY,
        [4],
    ]


@pytest.mark.parametrize(
    ("leases", "token", "fits"),
    [
        ((), 1, True),
        (((1, BATCH - 1),), 1, True),
        (((1, BATCH),), 1, False),  # it is full
        (((1, MANY),), 2, False),
        (((1, MANY), (2, 1)), 2, False),  # the next write ends before it
        (((1, MANY - 1),), 2, True),
    ],
)
def test_an_end_fits_where_it_is_written_with_all_that_wait(
    leases: tuple[tuple[int, int], ...], token: int, fits: bool
) -> None:
    queue = queued(*leases)
    assert queue.fits(token) is fits
    queue.put(Succeed(b"last", token))
    assert (len(taken(queue)) == 1) is fits
