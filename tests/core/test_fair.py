"""Sharing is round robin with weights, whatever the sizes of the batches."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from limpet.core.limits.fair import Turn, places, share

RINGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=7).map(
    lambda pairs: [Turn(member, min(left, weight), weight) for member, (left, weight) in enumerate(pairs)]
)
BATCHES = st.lists(st.integers(0, 25), min_size=1, max_size=20)


def after(ring: list[Turn], served: list[int]) -> list[Turn]:
    """The ring after a batch, as an engine orders it: those that move take their places at the end."""
    moved = {place.member: place for place in places(ring, served)}
    stay = [turn for turn in ring if turn.member not in moved or not moved[turn.member].moves]
    weights = {turn.member: turn.weight for turn in ring}
    kept = [
        Turn(turn.member, moved[turn.member].left if turn.member in moved else turn.left, turn.weight) for turn in stay
    ]
    return kept + [Turn(p.member, p.left, weights[p.member]) for p in moved.values() if p.moves]


def one_by_one(ring: list[Turn], count: int) -> tuple[list[int], list[Turn]]:
    """The plainest round robin there is: the front is served until its turn is over, then goes to the end."""
    queue = deque(ring)
    given_to: Counter[int] = Counter()
    for _ in range(count):
        turn = queue[0]
        given_to[turn.member] += 1
        queue.popleft()
        if turn.left > 1:
            queue.appendleft(Turn(turn.member, turn.left - 1, turn.weight))
        else:
            queue.append(Turn(turn.member, turn.weight, turn.weight))
    return [given_to[turn.member] for turn in ring], list(queue)


@given(RINGS, BATCHES)
def test_batches_of_any_size_add_up_to_plain_round_robin(ring: list[Turn], batches: list[int]) -> None:
    slow = ring
    for count in batches:
        given_to = share(count, ring)
        expected, slow = one_by_one(slow, count)
        assert given_to == expected
        ring = after(ring, given_to)
        assert ring == slow


@given(RINGS, st.integers(0, 200))
def test_everything_is_given_and_nothing_else(ring: list[Turn], count: int) -> None:
    given_to = share(count, ring)
    assert sum(given_to) == count
    assert min(given_to) >= 0


@given(st.integers(1, 8), BATCHES)
def test_nobody_is_served_twice_before_everybody_was_served_once(members: int, batches: list[int]) -> None:
    ring = [Turn(member, 1, 1) for member in range(members)]
    total: Counter[int] = Counter()
    for count in batches:
        given_to = share(count, ring)
        total.update({turn.member: n for turn, n in zip(ring, given_to, strict=True)})
        ring = after(ring, given_to)
        counts = [total[member] for member in range(members)]
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 40))
def test_whole_rounds_are_proportional_to_the_weights(weights: list[int], rounds: int) -> None:
    ring = [Turn(member, weight, weight) for member, weight in enumerate(weights)]
    assert share(rounds * sum(weights), ring) == [rounds * weight for weight in weights]


def test_an_odd_batch_does_not_favour_the_first_of_two() -> None:
    ring = [Turn(1, 1, 1), Turn(2, 1, 1)]
    total: Counter[int] = Counter()
    for _ in range(10):
        given_to = share(3, ring)
        total.update({turn.member: n for turn, n in zip(ring, given_to, strict=True)})
        ring = after(ring, given_to)
    assert total == {1: 15, 2: 15}


@given(RINGS, st.data())
def test_who_had_nothing_to_run_keeps_its_place(ring: list[Turn], data: st.DataObject) -> None:
    given_to = share(data.draw(st.integers(0, 40)), ring)
    served = [data.draw(st.integers(0, n)) for n in given_to]
    by_member = dict(zip((turn.member for turn in ring), served, strict=True))
    for place in places(ring, served):
        turn = ring[place.member]
        assert 1 <= place.left <= turn.weight
        assert place.moves == (by_member[place.member] >= turn.left)
    assert {place.member for place in places(ring, served)} == {m for m, n in by_member.items() if n}


def test_an_empty_ring_gets_nothing() -> None:
    assert share(5, []) == []
    assert places([], []) == []
