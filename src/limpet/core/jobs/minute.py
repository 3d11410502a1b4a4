"""Decides how the ends of jobs are counted: in tallies by task, which add up over workers, and over minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

FIELD: Final = "last_minute"  # in what a worker says about itself
MINUTE_S: Final = 60.0
MOST_TASKS: Final = 50  # that a worker tells apart: its beat stays small
# Where one bucket of time ends and the next begins: two for each doubling, from a microsecond to three weeks. So a time
# is known to within a fifth. The bucket of a time is `bisect(BOUNDS_S, seconds)`.
BOUNDS_S: Final = tuple(2 ** (step / 2) / 1e6 for step in range(83))


Key = tuple[str, str]  # queue and task


class Tally(Struct, omit_defaults=True):
    """Attempts that ended: how many by outcome, and how long they ran and waited before, by bucket of time."""

    ended: dict[str, int] = {}
    runs: dict[int, int] = {}
    waits: dict[int, int] = {}
    run_s: float = 0.0  # all of them together
    wait_s: float = 0.0

    def add(self, other: Tally) -> None:
        """Take another one in, also one that is being counted in another thread."""
        for mine, theirs in ((self.runs, other.runs), (self.waits, other.waits)):
            for bucket, count in theirs.copy().items():
                mine[bucket] = mine.get(bucket, 0) + count
        for outcome, count in other.ended.copy().items():
            self.ended[outcome] = self.ended.get(outcome, 0) + count
        self.run_s += other.run_s
        self.wait_s += other.wait_s

    def copy(self) -> Tally:
        """As it is now; it may go on being counted in another thread."""
        return Tally(self.ended.copy(), self.runs.copy(), self.waits.copy(), self.run_s, self.wait_s)

    def since(self, before: Tally) -> Tally:
        """What has come since an earlier copy."""
        run_s, wait_s = max(0.0, self.run_s - before.run_s), max(0.0, self.wait_s - before.wait_s)
        return Tally(
            _grown(before.ended, self.ended),
            _grown(before.runs, self.runs),
            _grown(before.waits, self.waits),
            round(run_s, 6),
            round(wait_s, 3),
        )

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.ended.values())


class Minute(Struct, omit_defaults=True):
    """What one worker says of the last minute: its busiest tasks by name, and all others together."""

    seconds: float = MINUTE_S  # that it is about: a worker may have begun later
    tasks: dict[str, Tally] = {}
    others: Tally | None = None

    @classmethod
    def of(cls, tallies: dict[str, Tally], seconds: float) -> Minute:
        """Of many tasks those with the most ends stand alone."""
        names = sorted(tallies, key=lambda name: (-tallies[name].total, name))
        rest = names[MOST_TASKS:]
        others = summed(tallies[name] for name in rest) if rest else None
        return cls(round(seconds, 1), {name: tallies[name] for name in names[:MOST_TASKS]}, others)


K = TypeVar("K", str, int)


def _grown(before: dict[K, int], now: dict[K, int]) -> dict[K, int]:
    return {key: more for key, count in now.items() if (more := count - before.get(key, 0))}


def summed(tallies: Iterable[Tally]) -> Tally:
    """All of them in one."""
    found = Tally()
    for tally in tallies:
        found.add(tally)
    return found


def quantiles_s(buckets: dict[int, int], shares: Sequence[float]) -> list[float | None]:
    """The times that these ascending shares of them stayed within; None of none."""
    total, counted = sum(buckets.values()), sorted(buckets.items())
    found: list[float | None] = []
    at, below = 0, 0  # the bucket that is looked at, and what lies before it
    for share in shares:
        wanted = share * total
        while at < len(counted) and wanted > below + counted[at][1]:
            below += counted[at][1]
            at += 1
        if at == len(counted):
            found.append(None)
            continue
        bucket, count = counted[at]
        inside = (wanted - below) / count  # as if those of one bucket lay evenly in it
        # No better known than to two digits.
        found.append(0.0 if not bucket else float(f"{BOUNDS_S[bucket - 1] * 2 ** (inside / 2):.2g}"))
    return found


def quantile_s(buckets: dict[int, int], share: float) -> float | None:
    """The time that this share of them stayed within; None of none."""
    return quantiles_s(buckets, [share])[0]
