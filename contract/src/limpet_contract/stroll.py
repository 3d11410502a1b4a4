"""A long walk by seed: the same rules as the random walk, hundreds of steps on one store, the same way every time.

The random walk is short, and shrinks what it finds; this one goes far enough for what needs a long story
(a holder overtaken by another, a job lost too often), and is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from limpet_contract.harness import Harness
from limpet_contract.seeds import chance_of
from limpet_contract.walk import (
    AFTER,
    DELAYS,
    ENDS,
    EVENTS,
    EXPIRIES,
    FLOWS,
    FORGOTTEN,
    LANES,
    LEVELS,
    MAX_LOST,
    OPERATIONS,
    RECORDED,
    SAID,
    SPANS_MS,
    TURNS,
    UNIQUES,
    StoreWalk,
)

FAR = 1 << 20
ENOUGH = 3  # workers that are alive, for most of the jobs to be run
LOOK_EVERY = 4  # steps between two comparisons of everything
EVERY_LANE = range(len(LANES))
LIMITED_LANES = [number for number, lane in enumerate(LANES) if lane.get("task") in ("asks", "pays", "slow")]


class Stroll:
    """Draws for the rules what hypothesis draws for them in the random walk."""

    def __init__(self, walk: StoreWalk, rng: Random, lanes: Sequence[int] = EVERY_LANE) -> None:
        self.walk = walk
        self.rng = rng
        self._lanes = lanes

    def begin(self) -> None:
        self.walk.begin(self.lanes(12), hooked=self._lanes is EVERY_LANE)

    def lanes(self, most: int) -> list[int]:
        """Picks that mean some of the lanes of this stroll."""
        return [pick - pick % len(LANES) + self.rng.choice(self._lanes) for pick in self.picks(most)]

    def picks(self, most: int) -> list[int]:
        return [self.rng.randrange(FAR) for _ in range(self.rng.randint(1, most))]

    def seldom(self) -> bool:
        return self.rng.random() < 0.25

    def put(self) -> None:
        choice = self.rng.choice
        unique = choice(UNIQUES) if self.seldom() else None  # jobs of one key are mostly one job
        self.walk.put(self.lanes(6), choice(DELAYS), unique, choice(MAX_LOST), choice(EXPIRIES), choice(FLOWS))

    def put_after(self) -> None:
        self.walk.put_after(self.picks(2), self.rng.choice(DELAYS), self.rng.choice(AFTER))

    def put_alone(self) -> None:
        if self.walk.tandem.alive:
            self.walk.put_alone(self.rng.randrange(FAR), self.rng.randrange(FAR), not self.seldom())

    def put_again(self) -> None:
        self.walk.put_again(self.rng.randrange(FAR))

    def claim(self) -> None:
        if self.walk.tandem.alive:
            limit, taken = self.rng.randint(1, 8), self.rng.randint(0, 4)
            self.walk.claim(self.rng.randrange(FAR), limit, taken, self.rng.choice(LEVELS), self.seldom())

    def settle(self) -> None:
        if self.walk.tandem.given and self.walk.tandem.alive:
            ending, said = self.rng.choice(ENDS), self.rng.choice([None, None, *SAID])
            self.walk.settle(self.picks(3), ending, said, self.seldom(), self.seldom())

    def turn_over(self) -> None:
        few = len(self.walk.tandem.alive) < ENOUGH
        self.walk.turn_over(self.rng.randrange(FAR), "hire" if few else self.rng.choice(TURNS))

    def cancel(self) -> None:
        self.walk.cancel(self.rng.randrange(FAR), self.rng.random() < 0.5)

    def record(self) -> None:
        if self.walk.tandem.given:
            self.walk.record(self.rng.randrange(FAR), self.rng.choice(RECORDED), self.seldom())

    def signal(self) -> None:
        if self.walk.tandem.made:
            self.walk.signal(self.picks(3), self.rng.choice(EVENTS))

    def bring_back_or_discard(self) -> None:
        if self.walk.tandem.stopped():
            self.walk.bring_back_or_discard(self.rng.randrange(FAR), self.seldom(), self.rng.choice(FORGOTTEN))

    def change_limits(self) -> None:
        self.walk.change_limits(self.rng.randrange(FAR))

    def operate(self) -> None:
        paused = sorted(self.walk.model.paused)
        self.walk.operate(paused[0] if paused else self.rng.choice(OPERATIONS))

    def let_time_pass(self) -> None:
        self.walk.let_time_pass(self.rng.choice(SPANS_MS), self.rng.random() < 0.5)

    def let_much_time_pass(self) -> None:
        self.walk.let_time_pass(SPANS_MS[-1], True)


# How often each step is taken, so that most jobs are claimed and ended and some are not.
STEPS: Final[dict[Callable[[Stroll], None], int]] = {
    Stroll.put: 3,
    Stroll.put_after: 2,
    Stroll.put_alone: 2,
    Stroll.put_again: 1,
    Stroll.claim: 7,
    Stroll.settle: 6,
    Stroll.turn_over: 1,
    Stroll.record: 1,
    Stroll.signal: 1,
    Stroll.cancel: 1,
    Stroll.bring_back_or_discard: 1,
    Stroll.change_limits: 2,
    Stroll.operate: 1,
    Stroll.let_time_pass: 2,
}


# The same among limits and budgets: they are changed often, and minutes go by.
LIMITED_STEPS: Final[dict[Callable[[Stroll], None], int]] = {
    Stroll.put: 4,
    Stroll.claim: 8,
    Stroll.settle: 8,
    Stroll.turn_over: 1,
    Stroll.cancel: 2,
    Stroll.change_limits: 3,
    Stroll.operate: 1,
    Stroll.let_time_pass: 2,
    Stroll.let_much_time_pass: 2,
}


def stroll(harness: Harness, seed: int, *, steps: int = 300, limited: bool = False) -> None:
    """Go `steps` steps; the store and the model agree all the way, and in the end everything that can run does.

    With `limited`, all jobs are ruled by limits and budgets.
    """
    walk, rng = StoreWalk(harness), chance_of(seed)
    went = Stroll(walk, rng, LIMITED_LANES if limited else EVERY_LANE)
    chosen = LIMITED_STEPS if limited else STEPS
    kinds, weights = list(chosen), list(chosen.values())
    went.begin()
    try:
        for number in range(steps):
            rng.choices(kinds, weights)[0](went)
            if number % LOOK_EVERY == 0:
                walk.agree()
    except BaseException:
        walk.abandon()
        raise
    walk.teardown()
