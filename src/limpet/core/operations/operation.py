"""Decides what is stored of an operation (one action on many jobs), and how that changes as it goes through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.jobs.ids import id_of
from limpet.core.jobs.view import Control

KIND: Final = "operation"  # the kind of the controls that keep operations, one in each slot

LEASE_MS: Final = 20_000  # a runner that has written nothing for so long is taken for dead
CHUNK: Final = 500  # jobs of one step: a progress bar that moves, locks that stay short
STEPS_PER_SECOND: Final = 4  # of a throttled operation that acts on more jobs than that each second
WATCHED: Final = 100  # jobs that an operation with `stop_after` has brought back and that have not ended yet
PROBLEMS: Final = 20  # jobs that are named because they could not be changed, or died again

Verb = Literal["cancel", "retry", "rerun", "discard"]
VERBS: Final[tuple[Verb, ...]] = ("cancel", "retry", "rerun", "discard")
REPLAYS: Final[frozenset[Verb]] = frozenset({"retry", "rerun"})  # verbs whose jobs run afterwards

OperationState = Literal["waiting", "running", "paused", "done", "cancelled", "failed"]
OPERATION_STATES: Final[tuple[OperationState, ...]] = ("waiting", "running", "paused", "done", "cancelled", "failed")
UNFINISHED: Final = frozenset({"running", "paused", "failed"})  # as they are stored: what a person may continue

Pause = Literal["", "asked", "sample", "stop_after"]


class How(Struct, frozen=True, omit_defaults=True):
    """What was asked for beside the verb and the jobs."""

    force: bool = False  # cancel
    delay_ms: int = 0  # retry
    args: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    forget: tuple[str, ...] = ()
    unique: bool = True  # rerun
    per_second: float | None = None
    sample: int = 0  # jobs after which it pauses
    stop_after: int = 0  # jobs that die again, after which it pauses


class Chunk(Struct, frozen=True, omit_defaults=True):
    """The jobs of one step, written down before the first of them is touched."""

    ids: tuple[bytes, ...]
    first: int  # how many jobs came before
    seq: int  # of the newest line of the audit log then
    facts: tuple[dict[str, Any], ...] = ()  # what the audit log keeps, each once
    of: tuple[int, ...] = ()  # which of these each job has

    def facts_by_id(self) -> dict[bytes, dict[str, Any]]:
        """What the audit log keeps of each job."""
        return {id: self.facts[place] for id, place in zip(self.ids, self.of, strict=True)}

    @classmethod
    def make(cls, ids: Sequence[bytes], facts: Sequence[Mapping[str, Any]], first: int, seq: int) -> Chunk:
        """The chunk of these jobs, with what is known of each; most of them have the same said of them."""
        places: dict[bytes, int] = {}
        of = [places.setdefault(msgspec.json.encode(each), len(places)) for each in facts]
        return cls(tuple(ids), first, seq, tuple(map(msgspec.json.decode, places)), tuple(of))


class Problem(Struct, frozen=True, omit_defaults=True):
    """A job that could not be changed, or that died again."""

    job: str
    answer: str
    holder: str = ""  # the job that has its unique key


class Operation(Struct, frozen=True, omit_defaults=True):
    """One action on many jobs, as it is stored."""

    id: str
    verb: Verb
    began_ms: int  # jobs that were enqueued, or ended, after this are left alone
    actor: str
    reason: str = ""
    query: str | None = None
    chosen: tuple[bytes, ...] = ()  # without a query: jobs that were named one by one
    how: How = How()
    queues: tuple[str, ...] | None = None  # of the token that began it: it acts within these; None: within all
    state: Literal["running", "paused", "done", "cancelled", "failed"] = "running"
    pause: Pause = ""
    why: str = ""  # it is paused, failed or cancelled
    by: str = ""  # the last person who paused, continued or cancelled it
    counted: bool = False
    matched: int = 0
    cursor: str = ""  # where the count continues, and then the walk
    walked: bool = False  # no page is left
    chunk: Chunk | None = None
    done: int = 0
    answers: dict[str, int] = {}
    changed: int = 0
    problems: tuple[Problem, ...] = ()
    sampled: tuple[bytes, ...] = ()
    sample_seen: bool = False  # a person has said that it may go on after the sample
    watched: tuple[bytes, ...] = ()
    died: int = 0  # jobs that died again, as far as they were watched
    forgiven: int = 0  # of these, when a person last continued it
    free_us: int = 0  # throttled: when the next job may be touched
    runner: str = ""
    until_ms: int = 0  # when its runner is taken for dead
    beat_ms: int = 0  # its last sign of life
    ended_ms: int | None = None

    @property
    def over(self) -> bool:
        """True when it will touch no job any more."""
        return self.state in ("done", "cancelled")

    @property
    def sampling(self) -> bool:
        """True while no more than the sample may be touched."""
        return self.how.sample > 0 and not self.sample_seen

    def lives(self, now_ms: int) -> bool:
        """True when some process runs it."""
        return bool(self.runner) and now_ms < self.until_ms

    def asks_as(self, other: Operation) -> bool:
        """Whether both ask for the same to be done."""
        return (self.verb, self.query, self.chosen, self.how) == (other.verb, other.query, other.chosen, other.how)

    def wants_runner(self, now_ms: int) -> bool:
        """True when a process should take it: it runs, or its last step is not written down yet, and no one does."""
        return (self.state == "running" or (self.state == "cancelled" and self.chunk is not None)) and not self.lives(
            now_ms
        )

    def room(self) -> int:
        """How many jobs the next step may touch; 0 when it has to wait for some to end."""
        most = CHUNK
        if self.how.per_second is not None:
            most = min(most, max(1, int(self.how.per_second / STEPS_PER_SECOND)))
        if self.sampling:
            most = min(most, self.how.sample - len(self.sampled))
        if self.how.stop_after:
            most = min(most, WATCHED - len(self.watched))
        return max(0, most)

    def held(self, runner: str, now_ms: int) -> Operation:
        """The same, run by this process."""
        return replace(self, runner=runner, until_ms=now_ms + LEASE_MS, beat_ms=now_ms)

    def released(self) -> Operation:
        """The same, run by no process."""
        return replace(self, runner="", until_ms=0)

    def begun(self, chunk: Chunk | None, cursor: str, now_us: int) -> Operation:
        """The same with its next step written down, and its time spent: a runner that takes over does not hurry."""
        free_us = self.free_us
        if chunk is not None and self.how.per_second is not None:
            free_us = max(self.free_us, now_us) + int(len(chunk.ids) * 1_000_000 / self.how.per_second)
        return replace(self, chunk=chunk, cursor=cursor, walked=not cursor, free_us=free_us)

    def counting(self, more: int, cursor: str) -> Operation:
        """The same with a page counted; after the last one the walk begins."""
        return replace(self, matched=self.matched + more, cursor=cursor, counted=not cursor)

    def acted(
        self,
        words: Mapping[bytes, str],
        changed: frozenset[str],
        replayed: Sequence[bytes],
        problems: Sequence[Problem],
    ) -> Operation:
        """The same after its step: one word for each job, and the jobs that run again because of it."""
        answers = Counter(self.answers)
        answers.update(words.values())
        return replace(
            self,
            chunk=None,
            done=self.done + len(words),
            answers=dict(answers),
            changed=self.changed + sum(word in changed for word in words.values()),
            problems=(*self.problems, *problems)[:PROBLEMS],
            sampled=(*self.sampled, *replayed) if self.sampling else self.sampled,
            watched=(*self.watched, *replayed) if self.how.stop_after else (),
        )

    def looked(self, ended: frozenset[bytes], dead: Sequence[str]) -> Operation:
        """The same when some of the watched jobs have ended, a few of them dead again."""
        again = tuple(Problem(id, "died_again") for id in dead)
        return replace(
            self,
            watched=tuple(id for id in self.watched if id not in ended),
            died=self.died + len(dead),
            problems=(*self.problems, *again)[:PROBLEMS],
        )

    def pausing(self) -> Pause:
        """Why it has to pause before its next step; "" when it does not."""
        if self.how.stop_after and self.died - self.forgiven >= self.how.stop_after:
            return "stop_after"
        if self.sampling and len(self.sampled) >= self.how.sample:
            return "sample"
        return ""

    def paused(self, pause: Pause, why: str = "", by: str = "") -> Operation:
        """The same, waiting for a person."""
        return replace(self, state="paused", pause=pause, why=why, by=by or self.by)

    def continued(self, by: str) -> Operation:
        """The same, going on: what made it pause is not held against it a second time."""
        seen = self.sample_seen or self.pause == "sample"
        return replace(
            self, state="running", pause="", why="", by=by, sample_seen=seen, forgiven=self.died, ended_ms=None
        )

    def ended(
        self, state: Literal["done", "cancelled", "failed"], now_ms: int, why: str = "", by: str = ""
    ) -> Operation:
        """The same at its end."""
        return replace(self, state=state, pause="", why=why, by=by or self.by, ended_ms=now_ms)

    def control(self, slot: str) -> Control:
        """The record that a store keeps."""
        return Control(KIND, slot, msgspec.json.encode(self))


def read_operation(control: Control) -> Operation | None:
    """The operation in a stored record; None when another release wrote one that cannot be read here."""
    try:
        return msgspec.json.decode(control.value, type=Operation)
    except msgspec.MsgspecError:
        return None


def new_job_id(operation: str, began_ms: int, place: int) -> bytes:
    """The id of the job that an operation makes of the job in this place: the same in every process, and each time.

    A uuid7: the instant of the operation, 42 bits of its name, 32 of the place; new jobs queue in the order of places.
    """
    return id_of(began_ms, int.from_bytes(sha256(operation.encode()).digest()[:6], "big") >> 6 << 32 | place)
