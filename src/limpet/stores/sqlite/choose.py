"""Chooses the lanes that a claim may take from: best priority first, least recently served first, gates kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from limpet.core.gate import UNLIMITED, Gate, is_counting, room
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import ClaimRequest
from limpet.core.limits.fair import Turn
from limpet.stores.sqlite.tx import Tx

MAX_CLAIM = 1024


class Candidate(NamedTuple):
    """An active lane that this worker may be given."""

    id: int
    member: int
    ring: int
    turn: int
    kind: int


class Choosing:
    """What one claim may still take, and what it need not look at again."""

    def __init__(self, tx: Tx, request: ClaimRequest) -> None:
        self.tx = tx
        self.request = request
        self.left = min(request.limit, MAX_CLAIM)
        self.slots = request.slots
        self.reopening: list[int] = []  # instants at which a shut class may go on
        self.skipped: set[int] = set()  # classes that give nothing to this claim
        self.skipped_lanes: set[int] = set()
        self.floor, self.least = 0, request.options.least_urgent  # priorities that it takes from
        self.floors: dict[int, int] = {}  # class → priority below which it has given all it can
        self.cut = False  # the lanes in view are only the first of more

    def _candidates(self) -> list[Candidate]:
        """Active lanes of the best priority that has any, least recently served first."""
        while open_ := self._open_classes():
            best = min(priority for priority, _ in open_)
            kinds = [kind for priority, kind in open_ if priority == best]
            found = self._lanes(kinds, best)
            if found:
                return found
            # All of them were looked at before: the next priority of these classes may still have something.
            self.floors.update(dict.fromkeys(kinds, best + 1))
        return []

    def _open_classes(self) -> list[tuple[int, int]]:
        """(best priority, class) of what this worker can run and no gate stops as a whole."""
        tx, request, needing = self.tx, self.request, self.request.options.needing
        able = []
        for kind, *found in tx.rows("active_classes"):
            if kind in self.skipped:
                continue
            floor = self.floors.get(kind, self.floor)
            first = tx.row("active_below", (kind, floor)) if floor else found
            if first is None:
                self.skipped.add(kind)
                continue
            priority, lane = first[0], tx.lane(first[1])
            if needing and needing not in lane.needs:
                continue
            if priority <= self.least and request.serves.can(lane.queue, lane.task, lane.needs):
                able.append((priority, kind, lane))
        tx.load_gates({key for _, _, lane in able for key in lane.class_gates})
        return [(priority, kind) for priority, kind, lane in able if self._class_is_open(kind, lane)]

    def _lanes(self, kinds: list[int], priority: int) -> list[Candidate]:
        """The first active lanes of these classes at one priority."""
        found: list[Candidate] = []
        horizons: dict[int, int] = {}  # by queue
        asked = self.left + len(self.skipped_lanes) + 1
        for kind in kinds:
            rows = self.tx.rows("seats", (kind, priority, asked))
            if len(rows) == asked:
                # Cut off: members beyond this turn may be seen with only some of their lanes.
                ring, turn = rows[-1][1:3]
                horizons[ring] = min(turn, horizons.get(ring, turn))
            for member, ring, turn, first, more in rows:
                ids = [first] if more is None else self._lanes_of(kind, member, asked)
                found += [Candidate(id, member, ring, turn, kind) for id in ids if id not in self.skipped_lanes]
        self.cut = bool(horizons)
        return [each for each in found if each.turn <= horizons.get(each.ring, each.turn)]

    def _lanes_of(self, kind: int, member: int, asked: int) -> list[int]:
        """The lanes of a member that has several, longest not served first."""
        return [id for (id,) in self.tx.rows("seat_lanes", (kind, member, asked))]

    def _class_is_open(self, kind: int, lane: Lane) -> bool:
        if not self._shut(lane.class_gates) and (self.slots > 0 or not self._must_start(lane)):
            return True
        self._skip_class(kind, lane)
        return False

    def _skip_class(self, kind: int, lane: Lane) -> None:
        """It gives nothing to this claim; time alone may open the gates that stop it."""
        self.skipped.add(kind)
        at = self.tx.all_open_at_ms(lane.class_gates)
        if at is not None:
            self.reopening.append(at)

    def _must_start(self, lane: Lane) -> bool:
        """Jobs under a limit are never held ahead of time."""
        if lane.limited:
            return True
        return any(is_counting(gate, self.tx.now_ms) for gate in self._gates(lane.class_gates))

    def _gates(self, keys: Sequence[str]) -> list[Gate]:
        return [gate for key in keys if (gate := self.tx.gate(key)) is not None]

    def _shut(self, keys: Sequence[str]) -> list[Gate]:
        return [gate for gate in self._gates(keys) if room(gate, self.tx.now_ms) <= 0]

    def _room(self, lane: Lane) -> int:
        gates = self._gates((*lane.class_gates, *lane.lane_gates))
        return min((room(gate, self.tx.now_ms) for gate in gates), default=UNLIMITED)

    # -- sharing

    def _scarce(self, candidates: list[Candidate], count: int) -> int:
        """How much may be shared at once: when a gate leaves less than is asked, everyone gets a part of that."""
        rooms = []
        for lane_id in {each.kind: each.id for each in candidates}.values():
            lane = self.tx.lane(lane_id)
            free = min((room(gate, self.tx.now_ms) for gate in self._gates(lane.class_gates)), default=UNLIMITED)
            rooms.append(min(free, self.slots) if self._must_start(lane) else free)
        return max(1, min(count, *rooms)) if max(rooms) < count else count

    def _turns(self, ids: list[int]) -> list[Turn]:
        rows = sorted(self.tx.rows_in("turns", ids), key=lambda row: (row[1], row[0]))
        seen: dict[int, Turn] = {id: Turn(id, max(1, left), max(1, weight)) for id, _, left, weight in rows}
        return list(seen.values()) + [Turn(id, 1, 1) for id in ids if id not in seen]
