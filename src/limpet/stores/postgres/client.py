"""Carries a verb to the server and its answer back, through whatever happens in between, until its time is over."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from limpet.core.errors import LimpetError
from limpet.stores.postgres import trouble
from limpet.stores.postgres.connection import Connection, Lost, Refusal, Row, Silent, Then
from limpet.stores.postgres.pool import Pool, pause
from limpet.stores.postgres.trouble import TROUBLE
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.postgres.wire import Statement, statement
from limpet.stores.sending import Sending, current_sending

WAKE: Final = "SELECT lp.wake_1(%b::bigint[], %b::integer[], %b::bigint[], %b::text[], %b::bigint)"

ONCE_S: Final = 0.01  # two who met in a deadlock do not meet again

Values = Sequence[Any]
Intercept = Callable[[str, str], None]

logger = logging.getLogger("limpet.stores.postgres")


class Posted(NamedTuple):
    """The last columns of a verb that changes something: w_lanes, w_ns, w_dues and w_gates."""

    lanes: list[int] | None
    ns: list[int] | None  # by lane: so many more jobs are ready
    dues: list[int | None] | None  # by lane: when its next timer rings
    gates: list[str] | None


POSTED: Final = len(Posted._fields)


class Request:
    """One verb under way, and what has become of it so far."""

    __slots__ = ("again", "connection", "deadline", "failures", "sent", "timeout_s", "verb")

    def __init__(self, verb: str, timeout_s: float, deadline: float, *, again: bool) -> None:
        self.verb = verb
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.again = again
        self.sent = False  # it may have happened: its answer got lost
        self.failures = 0
        self.connection: Connection | None = None  # the one that was used last


class Client:
    """The way from one event loop to the server: a few connections, made when needed and made again when lost."""

    def __init__(self, url: PostgresUrl, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(url)
        self._statements: dict[str, Statement] = {}
        self.vacuumed_at = -math.inf  # when this loop last saw to the hot tables
        self._errands: set[asyncio.Task[Any]] = set()

    @property
    def pooled(self) -> bool:
        """True when a pooler stands between us and the server."""
        return self._pool.pooled

    # -- what rooms call

    async def row(self, sql: str, values: Values = (), *, verb: str, repeat: bool = True) -> Row:
        """The one row that a statement answers; () when there is none."""
        rows = await self._request(sql, values, verb, repeat)
        return rows[0] if rows else ()

    async def rows(
        self, sql: str, values: Values = (), *, verb: str, repeat: bool = True, timeout_s: float | None = None
    ) -> list[Row]:
        """All rows that a statement answers."""
        return await self._request(sql, values, verb, repeat, timeout_s=timeout_s)

    async def change(
        self, sql: str, values: Values = (), *, verb: str, now_ms: int | None = None, repeat: bool = True
    ) -> Row:
        """The row of a verb without its last columns, which say what it posted: sleepers are woken for that.

        Sleepers are looked for in a second transaction, since one that falls asleep meanwhile cannot be seen by the
        first. It leaves on the same connection the moment the answer is there, and nobody waits for it.
        """

        def wake(connection: Connection, rows: list[Row]) -> None:
            posted = Posted._make(rows[0][-POSTED:])
            if posted.lanes or posted.gates:
                told = (*(array or [] for array in posted), now_ms)
                known = self._statement(WAKE)
                sent = connection.send(known, known.said(told), self._loop.time() + self.url.timeout_s)
                sent.add_done_callback(lambda done: self._wake_again(done, told))

        rows = await self._request(sql, values, verb, repeat, wake)
        return rows[0][:-POSTED]

    def _wake_again(self, done: asyncio.Future[list[Row]], told: Values) -> None:
        """Wake-ups that got lost are sent again; should that fail too, sleepers wake by their own clocks."""
        if not done.cancelled() and done.exception() is not None and not self._pool.dropped:
            errand = self._loop.create_task(self._try(WAKE, told))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _try(self, sql: str, values: Values) -> None:
        try:
            await self._request(sql, values, "wake", True)
        except LimpetError as error:
            logger.info("wake-ups were lost: %s", error)

    def _statement(self, sql: str) -> Statement:
        known = self._statements.get(sql)
        if known is None:
            known = self._statements[sql] = statement(sql, self.schema, f"limpet{len(self._statements)}".encode())
        return known

    # -- asking until there is an answer

    async def _request(
        self,
        sql: str,
        values: Values,
        verb: str,
        repeat: bool,
        then: Then | None = None,
        timeout_s: float | None = None,
    ) -> list[Row]:
        if self.intercept is not None:
            self.intercept(verb, "before")
        known = self._statement(sql)
        said = known.said(values)
        timeout_s = timeout_s or self.url.timeout_s
        request = Request(verb, timeout_s, self._loop.time() + timeout_s, again=repeat)
        if (sending := current_sending()) is not None:
            sending.begin(self.url.shown, self._pool.said)
        while True:
            try:
                request.connection = None
                connection = request.connection = self._pool.take() or await self._pool.wait(request.deadline)
                sent = connection.send(known, said, request.deadline, then)
                rows = await (sent if sending is None else _follow(sending, sent))
            except TROUBLE as error:
                await self._recover(request, error)
                continue
            if self.intercept is not None:
                self.intercept(verb, "after")
            return rows

    async def _recover(self, request: Request, error: BaseException) -> None:
        """Make it worth asking again, or raise."""
        if self._pool.dropped:
            raise trouble.closed(request.verb, sent=request.sent or request.connection is not None) from error
        if request.connection is None:
            raise self._over(request, error)  # no connection could be had: its time is over, or waiting is in vain
        if isinstance(error, Silent):
            request.sent = True
            raise self._over(request, error)
        if not isinstance(error, Lost | Refusal):
            raise error  # of the driver, about what it read: no way of asking changes that
        request.failures += 1
        if isinstance(error, Lost):
            # At once the first time: a proxy or a restart had cut a connection that nobody used.
            at_once = request.failures == 1
            request.sent = request.sent or error.sent
            if request.sent and not request.again:
                raise trouble.unsure(error, request.verb, self.url.shown)
        else:
            at_once = self._recover_from_refusal(request, request.connection, error)
        pause_s = random.uniform(0, ONCE_S) if at_once else pause(request.failures - 1)
        if self._loop.time() + pause_s >= request.deadline:
            raise self._over(request, error)
        await asyncio.sleep(pause_s)

    def _recover_from_refusal(self, request: Request, connection: Connection, refusal: Refusal) -> bool:
        """True when it is worth asking again at once."""
        remedy = trouble.remedy_of(refusal)
        if remedy == "none" or (remedy == "prepare" and request.failures > 2):
            raise trouble.refused(refusal, request.verb, self.url.shown)
        if remedy == "prepare":
            connection.forget()
        return remedy == "prepare" or (remedy == "again" and request.failures <= 3)

    def _over(self, request: Request, cause: BaseException) -> LimpetError:
        """Its time is over."""
        if request.sent:
            return trouble.silent(cause, request.verb, self.url.shown, request.timeout_s)
        # No connection before that: it was refused, and a first refusal is told at once.
        after_s = None if request.connection is None and self._loop.time() < request.deadline else request.timeout_s
        return trouble.hopeless(cause, request.verb, self.url.shown) or trouble.unreachable(
            cause, request.verb, self.url.shown, after_s
        )

    def drop(self) -> None:
        """Let go of all connections, for good: who still waits is told."""
        self._pool.drop()
        for errand in self._errands:
            errand.cancel()


async def _follow(sending: Sending, sent: asyncio.Future[list[Row]]) -> list[Row]:
    """The answer to what was sent. A refusal has changed nothing, unless the server process ended with it."""
    sending.out += 1
    try:
        return await sent
    except Lost as error:
        sending.out -= not error.sent
        raise
    except Refusal as error:
        sending.out -= not error.fatal
        raise
