"""One operation's view of the database: statements by name, and what must be written or told when it ends."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from limpet.core.endings.hook import Hook, read_hook
from limpet.core.gate import MOST_BREAKERS, Gate, GateRule, Pause, opens_at_ms, opens_sooner, rank, room
from limpet.core.jobs.job import URGENT as URGENT_PRIORITY
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.core.text.gate_events import marked, news
from limpet.stores.codes import BY_PARENT as BY_PARENT
from limpet.stores.codes import CANCELLING as CANCELLING
from limpet.stores.codes import DISCARDED as DISCARDED
from limpet.stores.codes import ENQUEUED as ENQUEUED
from limpet.stores.codes import EVER_CANCELLED as EVER_CANCELLED
from limpet.stores.codes import EVER_LOST as EVER_LOST
from limpet.stores.codes import EVER_SUCCEEDED as EVER_SUCCEEDED
from limpet.stores.codes import INPUTS as INPUTS
from limpet.stores.codes import KIDS as KIDS
from limpet.stores.codes import NOTES as NOTES
from limpet.stores.codes import SETTLED as SETTLED
from limpet.stores.codes import STALE as STALE
from limpet.stores.codes import WATCHED as WATCHED
from limpet.stores.sqlite.statements import statements, with_marks, with_prefix
from limpet.stores.waiters import CANCEL, FINISHED, HANDED, URGENT, WORK

BLOCKED, SCHEDULED, READY, RUNNING, SUCCEEDED, DEAD, CANCELLED = (state.code for state in State)

OF_TENANT = 20  # (queue, tenant, this): how many jobs of a tenant wait in a queue

KNOWN_LANES = 50_000  # how many definitions one process keeps in memory
KNOWN_HOOKS = 1_000
IN_SIZES = (1, 8, 64, 256)  # few shapes of "IN (…)": each is one prepared statement

_gate_encoder = msgspec.json.Encoder()
_gate_decoder = msgspec.json.Decoder(Gate)
_lane_decoder = msgspec.json.Decoder(Lane)
_policy_decoder = msgspec.json.Decoder(Policy)
_serves_decoder = msgspec.json.Decoder(Serves)


def gate_or_shut(key: str, body: bytes) -> Gate:
    """A stored gate; one that cannot be read admits no job until an operator sets it again, and says why."""
    try:
        return _gate_decoder.decode(body)
    except msgspec.DecodeError:
        return Gate(GateRule(key), declared=False, paused=Pause("limpet", "its record cannot be decoded", 0))


class Statements(Protocol):
    """What a transaction needs of a connection."""

    def execute(self, sql: str, args: Sequence[Any] = ..., /) -> sqlite3.Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> sqlite3.Cursor: ...


class Known:
    """What one process remembers of immutable rows: lanes and policies are named by their content."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.policies: dict[int, Policy] = {}
        self.serves: dict[bytes, Serves] = {}
        self.hooks: dict[bytes, Hook | None] = {}
        self.stored: set[int] = set()  # policies that were seen committed; they are never removed

    def unsure(self) -> Known:
        """The same for a caller's connection, whose file may be another by now: what is stored there is not known."""
        known = Known()
        known.lanes, known.policies, known.serves, known.hooks = self.lanes, self.policies, self.serves, self.hooks
        return known


class Tx:
    """Lives for one verb. Gates, counters and wake-ups are gathered here and written by `finish`."""

    def __init__(self, conn: Statements, prefix: str, known: Known, now_ms: int) -> None:
        self.conn = conn
        self.prefix = prefix
        self.sql = statements(prefix)
        self.known = known
        self.now_ms = now_ms
        self.store = ""  # the store's own name, where it was read on the way
        self.guests: int | None = None  # callers' transactions that were committed, likewise
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.lane_jobs: Counter[int] = Counter()
        self.ready: Counter[int] = Counter()  # lanes that gained ready jobs
        self.timers: dict[int, int] = {}  # lane → a new instant at which it will have some
        self.tells: list[tuple[str, bytes, bytes]] = []  # (address, kind, name or record), sent after the commit
        self.stored: set[int] = set()  # policies that this step stores, known as stored after the commit
        self.ended: dict[bytes, int] = {}  # jobs that ended where there are hooks → the token of the lease, or 0
        self._gates: dict[str, Gate | None] = {}
        self._touched: set[str] = set()
        self._changed: set[str] = set()
        self._before: dict[str, Gate | None] = {}  # what those that changed were at first
        self._breakers: int | None = None  # that are stored
        self._shut: set[str] = set()  # gates that had no room when this step first saw them

    # -- statements

    def table(self, name: str) -> str:
        """A table or index of this namespace, for the few statements that are put together at run time."""
        return with_prefix(name, self.prefix)

    def rows(self, name: str, args: Sequence[Any] = ()) -> list[Any]:
        return self.conn.execute(self.sql[name], args).fetchall()

    def row(self, name: str, args: Sequence[Any] = ()) -> Any:
        return self.conn.execute(self.sql[name], args).fetchone()

    def run(self, name: str, args: Sequence[Any] = ()) -> int:
        return self.conn.execute(self.sql[name], args).rowcount

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        self.conn.executemany(self.sql[name], rows)

    def rows_in(self, name: str, keys: Sequence[Any], first: Sequence[Any] = ()) -> list[Any]:
        """Rows of a statement that holds `IN (:keys)`, for any number of keys; `first` goes before them."""
        found: list[Any] = []
        start = 0
        while start < len(keys):
            left = len(keys) - start
            size = next((s for s in IN_SIZES if s >= left), IN_SIZES[-1])
            part = list(keys[start : start + size])
            start += size
            part += [part[-1]] * (size - len(part))
            text = with_marks(self.sql[name], ":keys", "?", size)
            found += self.conn.execute(text, [*first, *part]).fetchall()
        return found

    # -- immutable rows

    def lane(self, lane_id: int) -> Lane:
        lane = self.known.lanes.get(lane_id)
        if lane is None:
            if len(self.known.lanes) >= KNOWN_LANES:
                self.known.lanes.clear()  # lanes of tenants long gone: those in use are read again
            lane = _lane_decoder.decode(self.row("lane_body", (lane_id,))[0])
            self.known.lanes[lane_id] = lane
        return lane

    def policy(self, policy_id: int) -> Policy:
        policy = self.known.policies.get(policy_id)
        if policy is None:
            policy = _policy_decoder.decode(self.row("policy_body", (policy_id,))[0])
            self.known.policies[policy_id] = policy
        return policy

    def serves(self, body: bytes) -> Serves:
        serves = self.known.serves.get(body)
        if serves is None:
            serves = self.known.serves[body] = _serves_decoder.decode(body)
        return serves

    @cached_property
    def hooks(self) -> list[Hook]:
        """The published hooks."""
        values, known = [value for (value,) in self.rows("hooks")], self.known.hooks
        if len(known) > KNOWN_HOOKS:
            known.clear()
        for value in values:
            if value not in known:
                known[value] = read_hook(value)
        return [hook for value in values if (hook := known[value]) is not None]

    # -- gathered writes

    def end(self, id: bytes, token: int | None = None) -> None:
        """A job has ended: under this token, or as it waited. Its hooks follow at the end of the step."""
        if self.hooks:
            self.ended[id] = token or 0

    def move(self, lane: Lane, old: int | None, new: int | None, count: int = 1) -> None:
        """Count jobs that went from one state to another."""
        if lane.tenant is not None:
            now, before = new is not None and new < RUNNING, old is not None and old < RUNNING
            if now != before:
                self.counts[lane.queue, lane.tenant, OF_TENANT] += count if now else -count
        if old is not None:
            self.counts[lane.queue, lane.task, old] -= count
        if new is not None:
            self.counts[lane.queue, lane.task, new] += count
            if new == SUCCEEDED:
                self.counts["", "", EVER_SUCCEEDED] += count
            elif new == CANCELLED:
                self.counts["", "", EVER_CANCELLED] += count

    def tally(self, what: int, count: int = 1) -> None:
        self.counts["", "", what] += count

    def load_gates(self, keys: Iterable[str]) -> None:
        """Read several gates at once."""
        missing = [key for key in keys if key not in self._gates]
        if missing:
            self._gates.update(dict.fromkeys(missing))
            for key, body in self.rows_in("gates_by_key", missing):
                self._gates[key] = gate_or_shut(key, body)

    def gate(self, key: str) -> Gate | None:
        if key not in self._gates:
            self.load_gates([key])
        return self._gates[key]

    def gate_or_new(self, key: str) -> Gate:
        return self.gate(key) or Gate(GateRule(key))

    def put_gate(self, gate: Gate) -> None:
        old = self.gate(gate.key)
        if old is not None and gate.key not in self._changed and room(old, self.now_ms) <= 0:
            self._shut.add(gate.key)
        if old != gate:
            self._before.setdefault(gate.key, old)
            self._gates[gate.key] = gate
            self._changed.add(gate.key)
        self._touched.add(gate.key)

    def has_room_for_a_breaker(self) -> bool:
        """Whether one more key may have a breaker of its own, which it then gets."""
        if self._breakers is None:
            self._breakers = int(self.row("breaker_count")[0])
        has_room = self._breakers < MOST_BREAKERS
        self._breakers += has_room
        return has_room

    def touch_gate(self, key: str) -> None:
        """Look again at the end whether lanes that wait at this gate can run."""
        self._touched.add(key)

    def leave_leases(self, left: Mapping[int, int]) -> None:
        """The leases with these tokens hold fewer jobs; a lease without jobs ends."""
        for token, count in left.items():
            if not self.run("lease_done", (token, count)):
                self.run("lease_less", (count, token))

    def next_turn(self) -> int:
        return int(self.row("next_turn")[0])

    # -- the end

    def finish(self, *, tell: bool = True) -> None:
        """Write what was gathered. After it every touched gate with waiters has none left to wake, or is timed."""
        self._settle_gates()
        if self.lane_jobs:
            self.many("lane_count", [(n, lane) for lane, n in self.lane_jobs.items() if n])
        if self.counts:
            self.many("count_add", [(*key, n) for key, n in self.counts.items() if n])
            self.many("tenant_gone", [key[:2] for key, n in self.counts.items() if n < 0 and key[2] == OF_TENANT])
        if self.ready and tell:
            self._wake_workers()
        if self.timers and tell:
            self._wake_for_timers()

    def _settle_gates(self) -> None:
        sooner = {key for key in self._shut & self._changed if self._opens_sooner(key)}
        self._wake_opened_classes(sooner)
        self._log_news()
        for key in sorted(self._touched):
            gate = self.gate(key)
            opens: int | None = None
            if stops_lanes := key.startswith(("limit:", "breaker:")):
                opens = self._wake_lanes(key, gate)
            if opens is not None and key in sooner:
                self._note_waiters(key, opens)
            if gate is not None and key in self._changed:
                self.run("gate_put", (key, _gate_encoder.encode(gate), opens, rank(gate)))
            elif gate is not None and stops_lanes:
                self.run("gate_arm", (opens, key, opens))

    def _log_news(self) -> None:
        """What became of gates that people want to hear of."""
        for key, before in self._before.items():
            after = self._gates[key]
            if after is None:
                continue
            for entry in news(before, after, self.now_ms):
                self.run("log_add", (entry.log, entry.at_ms, entry.kind, "", None, "", entry.data))
            self._gates[key] = marked(before, after, self.now_ms)

    def _opens_sooner(self, key: str) -> bool:
        before, after = self._before[key], self._gates[key]
        return before is not None and after is not None and opens_sooner(before, after, self.now_ms)

    def _wake_opened_classes(self, sooner: set[str]) -> None:
        """A gate that stops whole classes has room again, or will have it sooner: who sleeps should hear of it."""
        opened = {}
        for key in self._shut & self._changed:
            gate = self.gate(key)
            assert gate is not None
            if (free := room(gate, self.now_ms)) > 0:
                opened[key] = min(free, 64)
        if not opened and not sooner:
            return
        for _, _, lane_id in self.rows("active_classes"):
            keys = self.lane(lane_id).class_gates
            free_of = [opened[key] for key in keys if key in opened]
            if free_of:
                self.ready[lane_id] += min(free_of)
            elif not sooner.isdisjoint(keys) and (at := self.all_open_at_ms(keys)) is not None:
                self.note_timer(lane_id, at)

    def all_open_at_ms(self, keys: Sequence[str]) -> int | None:
        """When the last of these gates that is shut opens; None when none is, or time alone does not open them all."""
        self.load_gates(keys)
        last: int | None = None
        for key in keys:
            gate = self._gates[key]
            if gate is not None and room(gate, self.now_ms) <= 0:
                opens_ms = opens_at_ms(gate, self.now_ms)
                if opens_ms is None:
                    return None
                last = max(last or 0, opens_ms)
        return last

    def _note_waiters(self, key: str, opens_ms: int) -> None:
        """The gate admits its waiting lanes sooner than they were told."""
        for (kind,) in self.rows("waiting_classes", (key,)):
            self.note_timer(int(self.row("waiting_lane", (key, kind))[0]), opens_ms)

    def wake_lanes_now(self, keys: Sequence[str]) -> None:
        """Let lanes go on whose gates' time has come, before this step reads the active ones."""
        for key in keys:
            opens = self._wake_lanes(key, self.gate(key))
            self.run("gate_arm", (opens, key, opens))

    def _wake_lanes(self, key: str, gate: Gate | None) -> int | None:
        """Wake as many lanes of each waiting class as the gate has room for; else say when to look again."""
        classes = [row[0] for row in self.rows("waiting_classes", (key,))]
        if not classes:
            return None
        free = room(gate, self.now_ms) if gate is not None else 1 << 30
        if free <= 0:
            assert gate is not None
            return opens_at_ms(gate, self.now_ms)
        for kind in classes:
            for (lane_id,) in self.rows("wake_lanes", (key, kind, min(free, 256))):
                lane = self.lane(lane_id)
                turn = self.row("turn_get", (lane.member,))
                self.take_seat(lane, 0 if turn is None else turn[0])
                self.ready[lane_id] += 1
        # The woken lanes carry the room: a lane that uses it, finds it taken or is empty touches the gate again.
        return None

    def take_seat(self, lane: Lane, turn: int) -> None:
        """A lane became active: its member has a place in the line of its class."""
        self.run("seat_take", (lane.kind, lane.priority, lane.member, lane.ring, turn, lane.id))

    def _wake_workers(self) -> None:
        sleepers = [(name, self.serves(asked), ear, slots) for name, asked, ear, slots in self.rows("idle_sessions")]
        woken: list[str] = []
        for lane_id, count in sorted(self.ready.items(), key=lambda item: self.lane(item[0]).priority):
            lane = self.lane(lane_id)
            able = [
                sleeper
                for sleeper in sleepers
                if sleeper[1].can(lane.queue, lane.task, lane.needs) and (sleeper[3] or not lane.limited)
            ][:count]
            for sleeper in able:
                sleepers.remove(sleeper)
                woken.append(sleeper[0])
                self.tell(sleeper[2], WORK, sleeper[0])
            if len(able) < count and lane.priority <= URGENT_PRIORITY:
                self._wake_busy(lane, count - len(able), set(woken))
        self.many("session_busy", [(name,) for name in woken])

    def _wake_busy(self, lane: Lane, count: int, woken: set[str]) -> None:
        for name, serves, ear in self.rows("live_sessions", (self.now_ms,)):
            if count <= 0:
                return
            if name not in woken and self.serves(serves).can(lane.queue, lane.task, lane.needs):
                self.tell(ear, URGENT, name)
                count -= 1

    def _wake_for_timers(self) -> None:
        """A worker that sleeps until a later instant must hear of an earlier one; one of them is enough."""
        for lane_id, due_ms in self.timers.items():
            lane = self.lane(lane_id)
            for name, serves, ear, slots in self.rows("idle_sessions_until", (due_ms,)):
                if self.serves(serves).can(lane.queue, lane.task, lane.needs) and (slots or not lane.limited):
                    self.run("session_next", (due_ms, name))
                    self.tell(ear, WORK, name)
                    break

    def note_timer(self, lane_id: int, due_ms: int) -> None:
        known = self.timers.get(lane_id)
        if known is None or due_ms < known:
            self.timers[lane_id] = due_ms

    def tell(self, ear: str | None, kind: bytes, name: str) -> None:
        if ear is not None:
            self.tells.append((ear, kind, name.encode()))

    def hand(self, ear: str, message: bytes) -> None:
        """Send a session the record of a job that is claimed for it."""
        self.tells.append((ear, HANDED, message))

    def tell_cancel(self, session: str) -> None:
        row = self.row("session_ear", (session,))
        if row is not None:
            self.tell(row[0], CANCEL, session)

    def tell_finished(self, ids: Sequence[bytes]) -> None:
        """Wake the callers that wait for the results of these jobs."""
        for job, ear in self.rows_in("watchers", ids):
            self.tells.append((ear, FINISHED, job))
        self.many("watch_done", [(id,) for id in ids])
