"""Two connections to one schema, and calls that are seen to wait for each other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Generic, TypeVar

import psycopg

from limpet.core.endings.transition import Settled, Transition
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Signal
from limpet.stores.base import NOTHING_SPENT, SignalAnswer
from limpet.stores.postgres.enqueue import ENQUEUE, Batch
from limpet.stores.postgres.operate import SIGNAL, SIGNAL_ANSWERS, signal_columns
from limpet.stores.postgres.settle import SETTLE, answers, columns
from tests.engines.postgres.schemas import Schema

T = TypeVar("T")
Line = psycopg.Connection[Any]

NOW = 1_700_000_000_000
PATIENCE_S = 60.0
LANE = Lane("q", "t")
POLICY = Policy(max_lost=3)

# What a claim does to one job: it leaves `wait` and runs.
CLAIM = """
WITH gone AS (DELETE FROM lp.wait WHERE id = %(id)s RETURNING *), lease AS (
  INSERT INTO lp.lease (token, session, left_n) VALUES (%(token)s, 'claimer', 1)
)
INSERT INTO lp.running (id, token, lane, due_ms, claimed_ms, attempt, lost, held, cost, priority, flags)
SELECT id, %(token)s, lane, due_ms, due_ms, attempt + 1, lost, held, cost, priority, flags FROM gone
"""


class Call(Generic[T]):
    """A call under way in a thread of its own, on a connection of its own unless one is named."""

    def __init__(self, schema: Schema, work: Callable[[Line], T], line: Line | None = None) -> None:
        self._schema = schema
        self._own = line is None
        self._line = line or schema.connect(autocommit=True)
        self._pid = self._line.info.backend_pid
        self._work = work
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._work(self._line))
        except BaseException as error:
            self._error = error
        finally:
            if self._own:
                self._line.close()

    def waits(self) -> bool:
        """True once it is seen to wait for a lock; False once it has ended without."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._thread.is_alive():
            ((waits,),) = self._schema.ask("SELECT cardinality(pg_blocking_pids(%s)) > 0", self._pid)
            if waits:
                return True
            assert time.monotonic() < deadline_s, "it neither waits nor ends"
            time.sleep(0.002)
        return False

    def answer(self) -> T:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it waits for ever"
        if self._error is not None:
            raise self._error
        return self._answer[0]


class Ground:
    """A schema with one lane, where jobs are put into whatever state a race begins with."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._numbers = count(1)
        self._tokens = count(1)
        self._names = count(1)
        self.moved = 0  # how often a job moved away from who signalled to it
        self.enqueue(self.job())
        schema.ask("SELECT lp.apply_posts(100, %s)", NOW)  # stores the lane and the policy

    # -- jobs

    def id(self) -> bytes:
        return (NOW << 80 | next(self._numbers)).to_bytes(16, "big")

    def job(self, **fields: Any) -> Job:
        return Job(self.id(), LANE, POLICY, b"{}", **fields)

    def enqueue(self, *jobs: Job, line: Line | None = None) -> list[Any]:
        batch, line, row = Batch(jobs, (), guest=False), line or self.schema.line, None
        while row is None:
            try:
                row = line.execute(self.schema.sql(ENQUEUE), _said(batch.values(NOW))).fetchone()
            except psycopg.errors.SerializationFailure:  # repeated, as the client does
                line.rollback()
        return batch.answers(*row[:3])

    def running(self, **fields: Any) -> tuple[bytes, int]:
        """A running job, alone under its lease unless a token is named."""
        id, token = self.id(), fields.pop("token", None) or next(self._tokens)
        head = {
            "due_ms": NOW, "claimed_ms": NOW, "attempt": 1, "lost": 0, "held": 0, "cost": 1, "priority": 5, "flags": 0,
            **fields,
        }  # fmt: skip
        names, marks = ", ".join(head), ", ".join(["%s"] * len(head))
        self.schema.ask(
            "INSERT INTO lp.job (id, lane, policy, enqueued_ms, args) VALUES (%s, %s, %s, %s, '') RETURNING 1",
            id, LANE.id, POLICY.id, NOW,
        )  # fmt: skip
        self.schema.ask(
            f"INSERT INTO lp.running (id, token, lane, {names}) VALUES (%s, %s, %s, {marks}) RETURNING 1",
            id, token, LANE.id, *head.values(),
        )  # fmt: skip
        self.schema.ask(
            "INSERT INTO lp.lease AS l (token, session, left_n) VALUES (%s, %s, 1) "
            "ON CONFLICT (token) DO UPDATE SET left_n = l.left_n + 1 RETURNING 1",
            token, f"holder of {token}",
        )  # fmt: skip
        return id, token

    def claim(self, id: bytes, line: Line) -> None:
        """A job that waits is claimed, alone under its lease."""
        line.execute(self.schema.sql(CLAIM), {"id": id, "token": next(self._tokens)})

    def state(self, id: bytes) -> int | None:
        ((state,),) = self.schema.ask("SELECT lp.state_of(%s)", id)
        return None if state is None else int(state)

    def total(self, what: int) -> int:
        """How often something was counted so far."""
        ((n,),) = self.schema.ask(
            "SELECT coalesce(sum(n), 0) FROM lp.tally AS t CROSS JOIN LATERAL unnest(t.whats, t.ns) AS u (what, n) "
            "WHERE u.what = %s",
            what,
        )
        return int(n)

    def name(self) -> str:
        """A session that nobody has used."""
        return f"settler {next(self._names)}"

    # -- calls

    def settle(
        self,
        *transitions: Transition,
        line: Line | None = None,
        session: str | None = None,
        seq: int = 1,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
    ) -> list[Settled]:
        values = (session or self.name(), seq, *settle_columns(transitions, spent), NOW)
        row = (line or self.schema.line).execute(self.schema.sql(SETTLE), values).fetchone()
        assert row is not None
        return answers(len(transitions), row[0], row[1])

    def settling(self, *transitions: Transition, session: str | None = None) -> Call[list[Settled]]:
        """A settlement on a connection of its own, under way."""
        name = session or self.name()
        return self.start(lambda line: self.settle(*transitions, line=line, session=name))

    def signal(self, *signals: Signal, line: Line | None = None, patient: bool = True) -> list[SignalAnswer]:
        """Asked again where a job moved, and with patience where somebody held one, as the client does."""
        values, row = (None, *signal_columns(signals), NOW), None
        while row is None:
            try:
                row = (line or self.schema.line).execute(self.schema.sql(SIGNAL), values).fetchone()
            except psycopg.errors.SerializationFailure:
                self.moved += 1
            except psycopg.errors.LockNotAvailable:
                if not patient:
                    raise
        return [SIGNAL_ANSWERS[code] for code in row[0]]

    def signalling(self, *signals: Signal) -> Call[list[SignalAnswer]]:
        """Signals on a connection of their own, under way."""
        return self.start(lambda line: self.signal(*signals, line=line))

    def one(self, query: str, *values: object, line: Line | None = None) -> Any:
        """The only value that a statement answers."""
        row = (line or self.schema.line).execute(self.schema.sql(query), values).fetchone()
        assert row is not None
        return row[0]

    def start(self, work: Callable[[Line], T], line: Line | None = None) -> Call[T]:
        return Call(self.schema, work, line)

    @contextlib.contextmanager
    def open(self) -> Iterator[Line]:
        """A connection with a transaction that the test ends; what is still open then is rolled back."""
        with contextlib.closing(self.schema.connect()) as line:
            yield line
            line.rollback()  # a server hears of a closed connection later


def settle_columns(
    transitions: Sequence[Transition], spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT
) -> tuple[Any, ...]:
    """What a settlement says of these, for the driver."""
    ids, tokens, results, *jsons = columns(transitions, spent)
    return ids, tokens, results, *(None if each is None else [_text(one) for one in each] for each in jsons)


def _said(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_text, values))


def _text(value: Any) -> Any:
    """JSON as text, which the driver does not take for bytes."""
    return value.decode() if isinstance(value, bytes) else value
