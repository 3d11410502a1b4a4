"""Carries a verb to the server and its answer back, through whatever happens in between, until its time is over."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from limpet.core.errors import LimpetError, StoreError
from limpet.stores.errand import errand
from limpet.stores.postgres import trouble
from limpet.stores.postgres.connection import Connection, Refusal, Row
from limpet.stores.postgres.pool import Pool
from limpet.stores.postgres.trouble import TROUBLE
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.postgres.wire import Statement, statement
from limpet.stores.sending import Sending, current_sending
from limpet.stores.server.client import Request, ServerClient, pause
from limpet.stores.server.trouble import Lost, closed

WAKE: Final = "SELECT lp.wake_1(%b::bigint[], %b::integer[], %b::bigint[], %b::text[], %b::bigint)"

ONCE_S: Final = 0.01  # two who met in a deadlock do not meet again
BUSY: Final = 30  # calls within a second; what an idle worker asks in its busiest second is half of that
CALM_S: Final = 10.0  # after its last busy second a loop is calm again
HEARD_S: Final = 1.0  # beyond the time of a call, before a loop that should answer it counts as one that stands still

T = TypeVar("T")
Values = Sequence[Any]

logger = logging.getLogger("limpet.stores.postgres")


class Posted(NamedTuple):
    """The last columns of a verb that changes something: w_lanes, w_ns, w_dues and w_gates."""

    lanes: list[int] | None
    ns: list[int] | None  # by lane: how many more jobs are ready
    dues: list[int | None] | None  # by lane: when its next timer rings
    gates: list[str] | None


POSTED: Final = len(Posted._fields)


class Call(NamedTuple):
    """What is asked, whichever connection it goes over."""

    sql: str
    values: Values
    verb: str
    repeat: bool = True  # it may be asked again when its answer got lost
    timeout_s: float | None = None  # None: as long as any; what may take longer says so
    wakes: bool = False  # the last four columns of its row are who to wake
    now_ms: int | None = None


class CallRate:
    """How often a loop asks: seldom enough to be calm, or not."""

    def __init__(self) -> None:
        self._calls: deque[float] = deque(maxlen=BUSY)
        self._busy_until = -math.inf

    def asks(self, now: float) -> None:
        """A call begins."""
        calls = self._calls
        if len(calls) == BUSY and now - calls[0] < 1.0:
            self._busy_until = now + CALM_S
        calls.append(now)

    def calm(self, now: float) -> bool:
        """True when it has asked little for a while."""
        return now >= self._busy_until

    def rest(self) -> None:
        """What it has asked so far was a beginning, and says nothing of what comes."""
        self._calls.clear()
        self._busy_until = -math.inf


class Query(Request):
    """A request to PostgreSQL."""

    __slots__ = ()

    connection: Connection | None


class Client(ServerClient[Query]):
    """The way from one event loop to the server: a few connections, made when needed and made again when lost.

    A loop that asks little needs none of its own where another loop of the process keeps its session: that one has a
    connection, and time.
    """

    def __init__(self, url: PostgresUrl, schema: str) -> None:
        super().__init__(url.shown)
        self.url = url
        self.schema = schema
        self.pool = Pool(url)
        self._statements: dict[str, Statement] = {}
        self.vacuumed_at = -math.inf  # when this loop last saw to the hot tables
        self._errands: set[asyncio.Task[Any]] = set()
        self._lender: Client | None = None
        self._rate = CallRate()
        self._pid = os.getpid()
        self._lends = url.pool > 1  # what others ask must not hold up what this loop is for

    @property
    def pooled(self) -> bool:
        """True when a pooler stands between us and the server."""
        return self.pool.pooled

    @property
    def lends(self) -> bool:
        """True when other loops may ask over the connections of this one."""
        here = self._pid == os.getpid()  # a fork has the loops of its parent, but they do not run
        return self._lends and here and not self.pool.dropped and not self._loop.is_closed()

    def borrow_of(self, lender: Client) -> None:
        """From here on use the connections of that client, of another loop, while this one asks little."""
        if lender is not self and lender is not self._lender and lender.lends:
            self._lender = lender
            lender.pool.thrifty = True
            self._rate.rest()

    # -- what rooms call

    async def row(self, sql: str, values: Values = (), *, verb: str, repeat: bool = True) -> Row:
        """The one row that a statement answers; () when there is none."""
        rows = await self._request(Call(sql, values, verb, repeat))
        return rows[0] if rows else ()

    async def rows(
        self, sql: str, values: Values = (), *, verb: str, repeat: bool = True, timeout_s: float | None = None
    ) -> list[Row]:
        """All rows that a statement answers."""
        return await self._request(Call(sql, values, verb, repeat, timeout_s))

    async def change(
        self, sql: str, values: Values = (), *, verb: str, now_ms: int | None = None, repeat: bool = True
    ) -> Row:
        """The row of a verb without its last columns, which say what it posted: sleepers are woken for that.

        Sleepers are looked for in a second transaction, since one that falls asleep meanwhile cannot be seen by the
        first. It leaves on the same connection the moment the answer is there, and no caller waits for it.
        """
        rows = await self._request(Call(sql, values, verb, repeat, wakes=True, now_ms=now_ms))
        return rows[0][:-POSTED]

    def _wake(self, connection: Connection, rows: list[Row], now_ms: int | None) -> None:
        posted = Posted._make(rows[0][-POSTED:])
        if posted.lanes or posted.gates:
            told = (*(array or [] for array in posted), now_ms)
            known = self._statement(WAKE)
            sent = connection.send(known, known.said(told), self._loop.time() + self.url.timeout_s)
            sent.add_done_callback(lambda done: self._wake_again(done, told))

    def _wake_again(self, done: asyncio.Future[list[Row]], told: Values) -> None:
        """Wake-ups that got lost are sent again; should that fail too, sleepers wake by their own clocks."""
        if not done.cancelled() and done.exception() is not None and not self.pool.dropped:
            self._errand(self._try(WAKE, told))

    async def _try(self, sql: str, values: Values) -> None:
        try:
            await self._answer(Call(sql, values, "wake"))
        except LimpetError as error:
            logger.info("wake-ups were lost: %s", error)

    def _errand(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A coroutine that no caller waits for."""
        task = errand(coroutine, self._loop)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task

    def _statement(self, sql: str) -> Statement:
        known = self._statements.get(sql)
        if known is None:
            known = self._statements[sql] = statement(sql, self.schema, f"limpet{len(self._statements)}".encode())
        return known

    # -- over whose connections

    async def _request(self, call: Call) -> list[Row]:
        lender = self._lender
        if lender is None or not self._may_borrow(lender, call):
            return await self._answer(call)
        return await self._borrow(lender, call)

    def _may_borrow(self, lender: Client, call: Call) -> bool:
        """Whether this call goes over the other loop's connections: not one that may hold them up, nor one of many.

        Those go over connections of our own, as soon as there is one: the server may have none left.
        """
        if not lender.lends:
            self._lender = None
        if self._lender is None or self.intercept is not None or call.timeout_s is not None:
            return False
        now = self._loop.time()
        self._rate.asks(now)
        if self._rate.calm(now):
            self.pool.let_go()
            return True
        return not self.pool.warm()

    async def _borrow(self, lender: Client, call: Call) -> list[Row]:
        """The answer that the other loop gets."""
        answer: asyncio.Future[list[Row]] = self._loop.create_future()
        under_way: list[asyncio.Task[list[Row]]] = []

        def ask() -> None:
            task = lender._errand(lender._answer(call))
            under_way.append(task)
            task.add_done_callback(tell)

        def tell(task: asyncio.Task[list[Row]]) -> None:
            with suppress(RuntimeError):  # our loop is closed: no caller waits any more
                self._loop.call_soon_threadsafe(_pass_on, task, answer, call.verb)

        def give_up() -> None:
            for task in under_way:
                task.cancel()

        try:
            lender._loop.call_soon_threadsafe(ask)
        except RuntimeError:  # its loop was closed in this moment
            return await self._answer(call)
        try:
            await asyncio.wait((answer,), timeout=self.url.timeout_s + HEARD_S)
            await asyncio.sleep(0)  # if it was this loop that stood still, the answer is heard now
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                lender._loop.call_soon_threadsafe(give_up)
            raise
        if not answer.done():
            lender._lends = False
            raise trouble.silent(None, call.verb, self.url.shown, self.url.timeout_s)
        try:
            return answer.result()
        except StoreError:
            if lender.lends or self.pool.dropped or not call.repeat:
                raise
            return await self._answer(call)  # the other loop has ended meanwhile, and ours has not

    # -- asking until there is an answer

    async def _answer(self, call: Call) -> list[Row]:
        """The rows that the server answers, over a connection of this loop."""
        verb = call.verb
        if self.intercept is not None:
            self.intercept(verb, "before")
        known = self._statement(call.sql)
        said = known.said(call.values)
        timeout_s = call.timeout_s or self.url.timeout_s
        request = Query(verb, timeout_s, self._loop.time() + timeout_s, again=call.repeat)
        then = partial(self._wake, now_ms=call.now_ms) if call.wakes else None
        if (sending := current_sending()) is not None:
            sending.begin(self.url.shown, self.pool.reach.said)
        while True:
            try:
                request.connection = None
                connection = request.connection = self.pool.take() or await self.pool.wait(request.deadline)
                sent = connection.send(known, said, request.deadline, then)
                rows = await (sent if sending is None else _follow(sending, sent))
            except TROUBLE as error:
                await self._recover(request, error)
                continue
            if self.intercept is not None:
                self.intercept(verb, "after")
            return rows

    async def _recover(self, request: Query, error: BaseException) -> None:
        if self.pool.dropped:
            raise closed(request.verb, sent=request.sent or request.connection is not None) from error
        if request.connection is None:
            raise self._over(request, error)  # no connection could be had: its time is over, or waiting is in vain
        await super()._recover(request, error)

    def _remedy(self, request: Query, error: BaseException) -> float:
        if not isinstance(error, Lost | Refusal):
            raise error  # of the driver, about what it read: no way of asking changes that
        request.failures += 1
        # At once the first time: a proxy or a restart had cut an unused connection.
        at_once = request.failures == 1 if isinstance(error, Lost) else self._helps_at_once(request, error)
        return random.uniform(0, ONCE_S) if at_once else pause(request.failures - 1)

    def _helps_at_once(self, request: Query, refusal: Refusal) -> bool:
        """True when it is worth asking again at once, False after a pause; else raises."""
        remedy = trouble.remedy_of(refusal)
        if remedy == "none" or (remedy == "prepare" and request.failures > 2):
            raise trouble.refused(refusal, request.verb, self.url.shown)
        if remedy == "prepare" and request.connection is not None:
            request.connection.forget()
        return remedy == "prepare" or (remedy == "again" and request.failures <= 3)

    def _over(self, request: Query, cause: BaseException) -> LimpetError:
        if request.sent:
            return trouble.silent(cause, request.verb, self.url.shown, request.timeout_s)
        # No connection before that: it was refused, and a first refusal is told at once.
        after_s = None if request.connection is None and self._loop.time() < request.deadline else request.timeout_s
        return trouble.hopeless(cause, request.verb, self.url.shown) or trouble.unreachable(
            cause, request.verb, self.url.shown, after_s
        )

    def drop(self) -> None:
        """Let go of all connections, for good: who still waits is told."""
        self.pool.drop()
        for task in self._errands:
            task.cancel()


def _pass_on(task: asyncio.Task[list[Row]], answer: asyncio.Future[list[Row]], verb: str) -> None:
    """What the other loop has come to, for who waits here."""
    error = closed(verb, sent=True) if task.cancelled() else task.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


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
