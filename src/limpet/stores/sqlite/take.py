"""Takes ready jobs for one claim: fair between queues and tenants, each charged at its gates, under leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice, zip_longest
from typing import NamedTuple

import msgspec

from limpet.core.endings.effect import UNDECODABLE
from limpet.core.errors import StoreCorrupt
from limpet.core.gate import Charge, Gate, admits, by_key, charge, falls_short, tightest
from limpet.core.jobs.job import LEAST_URGENT, Lane, Policy
from limpet.core.jobs.lease import ClaimRequest
from limpet.core.limits.fair import Turn, places, share
from limpet.stores.packed import PLAIN, Extra, extra_or_none
from limpet.stores.sqlite import graph, lanes
from limpet.stores.sqlite.choose import Candidate, Choosing
from limpet.stores.sqlite.tx import READY, RUNNING, Tx

MAX_ROUNDS = 256  # looks at the active lanes within one claim: then "ask again"
MAX_SET_ASIDE = 256  # and lanes that turn out shut or empty: a hundred thousand keys may run out at once
FIRST_PIECE = 4
SLACK_MS = 30_000  # beyond the hard timeout that the worker itself enforces

_encode = msgspec.json.Encoder().encode


class Row(NamedTuple):
    """A ready job, as the lane index and its body give it."""

    due_ms: int
    id: bytes
    attempt: int
    lost: int
    flags: int
    enqueued_ms: int
    expires_ms: int | None
    held: int
    held_since_ms: int | None
    lane: int
    policy: int
    args: bytes
    extra: bytes | None


class Taking(Choosing):
    """What one claim has taken so far."""

    def __init__(self, tx: Tx, request: ClaimRequest) -> None:
        super().__init__(tx, request)
        self.leases: dict[object, int] = {}  # what ends together → token
        self.rows: list[tuple[Row, int, Extra, bool, int]] = []
        self.charges: dict[bytes, list[Charge]] = {}
        self.set_aside = 0  # lanes that were active, and gave nothing since they were shut or empty
        self.passing = False  # it takes those that may pass more urgent ones
        self.fronts: dict[int, int] = {}  # lane → jobs at its front, when those are all it has
        self.disturbed = False  # a job left on the way, so its dependents may have come into lanes seen before

    @property
    def tokens(self) -> list[int]:
        return list(self.leases.values())

    def fill(self) -> bool:
        """Take until there is enough or nothing is left; True when a bound ended it first."""
        bounded = bool(self.request.options.aged) and self._fill_with_aged()
        return self._fill() or bounded

    def _fill_with_aged(self) -> bool:
        """Take those that may pass more urgent ones; what gave nothing to them may still give something."""
        enough = self.left
        self.left, self.passing = min(enough, self.request.options.aged), True
        self.floor, self.least = self.request.options.most_urgent, LEAST_URGENT
        bounded = self._fill()
        self.left, self.passing = enough - len(self.rows), False
        self.floor, self.least = 0, self.request.options.least_urgent
        self.skipped.clear()
        self.skipped_lanes.clear()
        self.floors.clear()
        return bounded

    def _fill(self) -> bool:
        for _ in range(MAX_ROUNDS):
            if self.left <= 0:
                return False
            if self.set_aside >= MAX_SET_ASIDE:
                break
            candidates = self._candidates()
            if not candidates:
                return False
            if len(candidates) == 1 and not self.cut:
                self._take(candidates, self.left)
                if self.left and self.tx.row("any_seat") is None:
                    return False  # it was the only active lane, and is empty now: no need for a closer look
            else:
                self._take_fairly(candidates)
        return self.left > 0

    # -- sharing

    def _take_fairly(self, candidates: list[Candidate]) -> None:
        """Share the rest of the claim between queues, then between the members of each."""
        rings = _by(candidates, "ring")
        turns = self._turns(list(rings))
        given = share(self._scarce(candidates, self.left), turns)
        served = self._in_turn(turns, given, lambda ring, count: self._take_from_ring(rings[ring], count))
        if len(turns) > 1:
            self._advance(turns, served, lanes_too=False)

    def _take_from_ring(self, candidates: list[Candidate], count: int) -> int:
        members = _by(candidates, "member")
        turns = self._turns(list(members))
        given = share(self._scarce(candidates, count), turns)
        served = self._in_turn(turns, given, lambda member, part: self._take(members[member], part))
        if len(turns) > 1 or self.cut:
            self._advance(turns, served, lanes_too=True)
        return sum(served)

    def _in_turn(self, turns: list[Turn], given: list[int], take: Callable[[int, int], int]) -> list[int]:
        """Take from each what it is given, and put one of each in turn: no member's jobs wait behind a whole share."""
        start, served, parts = len(self.rows), [], []
        for turn, count in zip(turns, given, strict=True):
            before = len(self.rows)
            served.append(take(turn.member, count) if count else 0)
            parts.append(self.rows[before:])
        if len(turns) > 1:
            self.rows[start:] = [row for each in zip_longest(*parts) for row in each if row is not None]
        return served

    def _advance(self, turns: Sequence[Turn], served: Sequence[int], *, lanes_too: bool) -> None:
        for place in places(turns, served):
            if not place.moves:
                self.tx.run("turn_left", (place.left, place.member))
                continue
            turn = self.tx.next_turn()
            self.tx.run("turn_move", (place.left, turn, place.member))
            if lanes_too:
                self.tx.run("seats_move", (turn, place.member))

    # -- taking

    def _take(self, members_lanes: list[Candidate], count: int) -> int:
        """Take up to `count` jobs of one member, in order of (due, id) across its lanes; how many it was."""
        if len(members_lanes) == 1:
            return self._start(members_lanes[0], self._peek(members_lanes[0], count))
        chosen = list(islice(merge(*(self._stream(lane, count) for lane in members_lanes)), count))
        start = len(self.rows)
        mine: dict[int, list[Row]] = {}
        for row in chosen:
            mine.setdefault(row.lane, []).append(row)
        taken = 0
        for lane in members_lanes:
            if lane.id in mine and (count := self._start(lane, mine[lane.id])):
                self.tx.run("lane_served", (mine[lane.id][-1].due_ms, lane.id))
                taken += count
        self.rows[start:] = sorted(self.rows[start:], key=lambda entry: entry[0][:2])
        return taken

    def _stream(self, candidate: Candidate, count: int) -> Iterator[Row]:
        """The jobs of a lane in order, read in growing pieces: with many lanes most need only their first."""
        size = min(count, FIRST_PIECE)
        rows = self._peek(candidate, size)
        while rows:
            yield from rows
            if len(rows) < size:
                return
            size = min(size * 4, count)
            behind = (candidate.id, rows[-1].due_ms, rows[-1].id, size)
            rows = [Row(*row) for row in self.tx.rows("lane_behind", behind)]

    def _peek(self, candidate: Candidate, count: int) -> list[Row]:
        """The front of a lane, as far as its gates have room. Expired and unreadable jobs leave on the way."""
        lane = self.tx.lane(candidate.id)
        self.tx.load_gates(lane.lane_gates)
        free = self._room(lane)
        if free <= 0:
            self._park(candidate, lane)
            return []
        asked = min(count, free)
        if self._must_start(lane):
            asked = min(asked, self.slots)
        if asked <= 0:  # no slot is left for it: that says nothing about what the lane holds
            self.skipped_lanes.add(candidate.id)
            return []
        rows = [Row(*row) for row in self.tx.rows("lane_front", (candidate.id, asked))]
        if not rows:
            lanes.rest(self.tx, lane)
            self.tx.wake_lanes_now(lane.lane_gates)  # it was woken for nothing: pass the wake on
            self.skipped_lanes.add(candidate.id)
            self.set_aside += 1
        elif len(rows) < asked and not lane.lane_gates:
            self.fronts[candidate.id] = len(rows)
        return rows

    def _park(self, candidate: Candidate, lane: Lane) -> None:
        """A lane stopped by a gate of its own waits there; the others it passed are looked at again."""
        self.skipped_lanes.add(candidate.id)
        shut = self._shut(lane.lane_gates)
        if not shut:
            self._skip_class(candidate.kind, lane)
            return
        self.set_aside += 1
        lanes.park(self.tx, lane, shut[0].key)
        self.tx.wake_lanes_now(lane.lane_gates)

    def _start(self, candidate: Candidate, rows: list[Row]) -> int:
        """Charge the gates for as many of `rows` as they admit, and take those."""
        if not rows:
            return 0
        lane = self.tx.lane(candidate.id)
        must_start = self._must_start(lane)
        usable = self._usable(candidate, rows)
        gates = self._gates((*lane.class_gates, *lane.lane_gates))
        costs = {gate.rule.unit: [extra.cost_in(gate.rule.unit) for _, extra in usable] for gate in gates}
        counts = [admits(gate, costs[gate.rule.unit], self.tx.now_ms) for gate in gates]
        admitted = min(counts, default=len(usable))
        if must_start:
            admitted = min(admitted, self.slots)
        short = [gate for gate, count in zip(gates, counts, strict=True) if count == admitted < len(usable)]
        if admitted <= 0:
            self._fall_short(short, costs, admitted)
            if usable and self._room(lane) <= 0:
                self._park(candidate, lane)
            elif usable:
                self.skipped_lanes.add(candidate.id)
            return 0
        taken = usable[:admitted]
        tokens = [self._token(row) for row, _ in taken]
        probe = False
        for gate in gates:
            changed, charged = charge(gate, costs[gate.rule.unit][:admitted], tokens[0], self.tx.now_ms)
            if charged:
                self.tx.put_gate(changed)
                probe = probe or charged[0].probe
                for (row, _), each in zip(taken, charged, strict=True):
                    self.charges.setdefault(row.id, []).append(each)
        if lane.breaker_key is not None:
            for row, _ in taken:
                own, key = f"breaker:{lane.breaker}", lane.lane_gates[-1]
                self.charges[row.id] = by_key(self.charges.get(row.id, ()), own, key)
        self._fall_short(short, costs, admitted)
        together = tightest(gates) if gates else 0
        self.rows += [(row, token, extra, probe, together) for (row, extra), token in zip(taken, tokens, strict=True)]
        self.left -= admitted
        self.slots -= admitted if must_start else sum(1 for row, _ in taken if row.lost)
        self._mark(lane, [row for row, _ in taken], tokens, whole=len(usable) == len(rows))
        if self.fronts.get(candidate.id) == admitted and not self.disturbed:
            lanes.rest(self.tx, lane)  # nothing is left: no need to look again
        return admitted

    def _fall_short(self, stopping: list[Gate], costs: dict[str, list[int]], at: int) -> None:
        """If only budgets stopped the job at this place, close them: smaller jobs cannot pass it; aged claims can."""
        if self.passing:
            return
        gates = [self.tx.gate_or_new(gate.key) for gate in stopping]
        shut = [falls_short(gate, costs[gate.rule.unit][at], self.tx.now_ms) for gate in gates]
        if all(after is not before for before, after in zip(gates, shut, strict=True)):
            for gate in shut:
                self.tx.put_gate(gate)

    def _token(self, row: Row) -> int:
        """Jobs with one hard deadline share a lease; a suspect has one of its own."""
        what: object = row.id if row.lost else self.tx.policy(row.policy).hard_timeout_ms
        token = self.leases.get(what)
        if token is None:
            token = self.leases[what] = int(self.tx.row("next_token", (self.tx.now_ms * 2048,))[0])
        return token

    def _usable(self, candidate: Candidate, rows: list[Row]) -> list[tuple[Row, Extra]]:
        """The rows that can run now; expired and undecodable ones leave, suspects need a free slot."""
        usable = []
        slots = self.slots
        for row in rows:
            if row.expires_ms is not None and row.expires_ms <= self.tx.now_ms:
                self.disturbed = True
                graph.cancel_waiting(self.tx, row.id, "expired")
                continue
            extra = PLAIN if row.extra is None else extra_or_none(row.extra)
            if extra is None or self._policy_or_none(row.policy) is None:
                self.disturbed = True
                graph.bury_waiting(self.tx, row.id, UNDECODABLE)
                continue
            if row.lost:
                if slots <= 0:
                    self.skipped_lanes.add(candidate.id)
                    continue
                slots -= 1
            usable.append((row, extra))
        return usable

    def _policy_or_none(self, policy_id: int) -> Policy | None:
        try:
            return self.tx.policy(policy_id)
        except (msgspec.DecodeError, TypeError):
            return None

    def _mark(self, lane: Lane, rows: list[Row], tokens: list[int], *, whole: bool) -> None:
        """Rows become running; when they are the whole front of the lane, in one statement."""
        tx = self.tx
        if rows[0].id in self.charges:
            packed = [
                (token, tx.now_ms, _encode(self.charges[row.id]), row.id)
                for row, token in zip(rows, tokens, strict=True)
            ]
            tx.many("job_start_charged", packed)
        elif whole and not self.disturbed and len(set(tokens)) == 1:
            started = tx.run("front_start", (tokens[0], tx.now_ms, lane.id, rows[-1].due_ms, rows[-1].id))
            if started != len(rows):  # one more would be running without a worker: better no claim at all
                raise StoreCorrupt(f"{started} jobs would start where {len(rows)} were seen", verb="claim")
        else:
            tx.many("job_start", [(token, tx.now_ms, row.id) for row, token in zip(rows, tokens, strict=True)])
        tx.move(lane, READY, RUNNING, len(rows))

    # -- the lease

    def lease(self) -> None:
        """Write the leases that cover all that was taken."""
        tx = self.tx
        sizes = Counter(token for _, token, *_ in self.rows)
        policies = {token: row.policy for row, token, *_ in reversed(self.rows)}
        for token, size in sizes.items():
            hard_ms = tx.policy(policies[token]).hard_timeout_ms
            until = None if hard_ms is None else tx.now_ms + hard_ms + SLACK_MS
            tx.run("lease_put", (token, self.request.session, until, size))


def _by(candidates: list[Candidate], field: str) -> dict[int, list[Candidate]]:
    groups: dict[int, list[Candidate]] = {}
    for each in candidates:
        groups.setdefault(getattr(each, field), []).append(each)
    return groups
