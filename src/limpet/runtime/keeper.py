"""Keeps the session alive from a thread and loop of its own, so that a blocked worker loop costs no lease."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final

from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Beat, Claimed, Note, Pulse
from limpet.core.limits.pushback import Lesson
from limpet.core.limits.spending import spent_note
from limpet.runtime.fence import Fence
from limpet.runtime.learner import Learner
from limpet.runtime.local_queue import LocalQueue
from limpet.runtime.log import worker_log
from limpet.runtime.minute_counter import AttemptCounter, Reading
from limpet.runtime.part import OnFailure
from limpet.runtime.patient_store import PatientStore, cut_off, pause_s
from limpet.runtime.rollup_writer import RollupWriter
from limpet.runtime.roster import kept_ms
from limpet.runtime.settings import WorkerPlan
from limpet.runtime.settler import Notebook
from limpet.stores.asking import joining

BETWEEN_NOTES_S: Final = 0.1
SEEN_S: Final = (
    0.6  # between two beats for what jobs say: with a look at it (client/watching.py) it is seen within a second
)
LOOK_S: Final = 0.005
REGULAR: Final = 0.9  # of the time between two beats: one that comes sooner was called for
LAST_BEAT_S: Final = 1.0  # how long the end waits for a beat that is under way: the store may be away
LAST_WORDS_S: Final = 2.0  # how long the end of a job waits for what it said last: notes are for people, ends are not


class StoreChannel:
    """Writes what a running job says to the store: progress, lines and costs with a beat, the rest at once."""

    def __init__(self, store: PatientStore, notebook: Notebook, learner: Learner) -> None:
        self._store = store
        self._notebook = notebook
        self._learner = learner

    def note(self, job: Claimed, note: Note) -> None:
        self._notebook.add(job.id, job.token, note, soon=True)

    def spent(self, job: Claimed, spent: Mapping[str, int]) -> None:
        self._notebook.add(job.id, job.token, spent_note(job, spent))

    def learn(self, gate: str, lesson: Lesson) -> None:
        self._learner.learn(gate, lesson)

    async def save(self, job: Claimed, note: Note) -> bool:
        # A step that has run must be recorded, however long the store is away: until its attempt runs out of time.
        return await self._store.save(job.id, job.token, note)

    async def complete(self, conn: object, job: Claimed, result: bytes | None) -> bool:
        return await joining(self._store.store, "complete a job").settle_on(conn, job.id, job.token, result)


class Keeper:
    """Beats in its own thread; what a beat answers is told to the worker's loop."""

    name = "keeper"

    def __init__(
        self,
        plan: WorkerPlan,
        notebook: Notebook,
        local_queue: LocalQueue,
        fence: Fence,
        info: Callable[[], bytes],
        on_pulse: Callable[[Pulse, bool], None],
        counter: AttemptCounter,
    ) -> None:
        self._store = plan.store
        self._session = plan.session
        self._serves = plan.serves
        self._settings = plan.settings
        self._notebook = notebook
        self._local_queue = local_queue
        self._fence = fence
        self._info = info
        self._on_pulse = on_pulse
        self._rollup = RollupWriter(plan.store, plan.session, Reading(counter))
        self._rng = random.Random()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now: asyncio.Event | None = None
        self._living: asyncio.Task[None] | None = None  # of the keeper's loop
        self._counting: asyncio.Task[None] | None = None
        self._counted_s = 0.0  # when the last beat began after which counts were written
        self._answered = asyncio.Event()  # of the worker's loop
        self._stopping = False
        self._began_s = 0.0  # when the last beat began, by the keeper's loop
        self.sent_ms = 0  # when the last beat was sent that the worker's loop has heard the answer of
        self.beaten_token = 0  # the newest claim when the last beat that was answered began

    async def start(self, on_failure: OnFailure) -> None:
        """Return after the first beat: a session must live before it claims."""
        main = asyncio.get_running_loop()
        beaten: asyncio.Future[None] = main.create_future()
        heard = False  # not the same as `beaten.done()`: a worker that is stopped before the answer cancels that

        def tell(call: Callable[[], None]) -> None:
            try:
                main.call_soon_threadsafe(call)
            except RuntimeError:
                self._stopping = True  # the worker's loop is closed: no job needs the session

        def died(error: BaseException) -> None:
            if not beaten.done():
                beaten.set_exception(error)
            else:
                on_failure(self.name, error)

        def pulse(answer: Pulse, token: int, sent_ms: int) -> None:
            nonlocal heard
            self.beaten_token, self.sent_ms = token, sent_ms
            first, heard = not heard, True
            self._answered.set()
            if not beaten.done():
                beaten.set_result(None)
            self._on_pulse(answer, first)

        def run() -> None:
            try:
                asyncio.run(self._live(lambda *answered: tell(lambda: pulse(*answered))))
            except asyncio.CancelledError:
                return  # its last beat was given up
            except BaseException as error:
                raised = error
                tell(lambda: died(raised))

        self._thread = threading.Thread(target=run, name="limpet-keeper", daemon=True)
        self._thread.start()
        await beaten

    def beat_now(self) -> None:
        """Do not wait for the next regular beat: someone cancelled a job, or its last words must be written."""
        if self._now is not None:
            self._call(self._now.set)

    def _hear(self) -> None:
        """A job has said something: beat for it, but not more often than `SEEN_S` allows. Any thread."""
        self._call(self._beat_for_notes)

    def _beat_for_notes(self) -> None:
        asyncio.get_running_loop().call_at(self._began_s + SEEN_S, self._beat_if_noted)

    def _beat_if_noted(self) -> None:
        if self._notebook and self._now is not None:  # else another beat has taken it along
            self._now.set()

    def _call(self, call: Callable[[], object]) -> None:
        """Have something done in the keeper's loop, while there is one."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(call)

    async def last_words(self, jobs: Set[tuple[bytes, int]]) -> None:
        """Return when all is written that these jobs have said, by id and token; once they have ended, no beat can."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while self._notebook.holds(jobs):
                    self._answered.clear()
                    self.beat_now()
                    await self._answered.wait()

    async def stop(self) -> None:
        """End the thread after its last beat; one that is not answered soon is given up."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        self.beat_now()
        await _ended(thread, LAST_BEAT_S)
        loop, living = self._loop, self._living
        if thread.is_alive() and loop is not None and living is not None and not loop.is_closed():
            loop.call_soon_threadsafe(living.cancel)
            await _ended(thread, LAST_BEAT_S)

    async def _live(self, tell: Callable[[Pulse, int, int], None]) -> None:
        self._now = now = asyncio.Event()
        self._loop = loop = asyncio.get_running_loop()
        self._living = asyncio.current_task()
        self._notebook.on_news = self._hear
        heard_at_s = time.monotonic()
        failures = 0
        while not self._stopping:
            wait_s = self._settings.beat_ms / 1000
            now.clear()  # before the beat: who calls while it is under way wants the next one at once
            try:
                # Claims answered after this moment may belong to a session that this very beat opens again.
                self._began_s = loop.time()
                token, sent_ms = self._local_queue.newest_token, kept_ms()
                pulse = await self._beat()
                if not pulse.fresh:  # else what was held before is lost, and the loop stops it first
                    self._fence.beaten(sent_ms)
                tell(pulse, token, sent_ms)
            except StoreError as error:
                if not error.retryable:
                    raise
                if time.monotonic() - heard_at_s > self._settings.cut_off_ms / 1000:
                    raise cut_off("beat", time.monotonic() - heard_at_s, error) from error
                if not failures:
                    worker_log(logging.WARNING, "heartbeat failed", code=error.code, error=error)
                wait_s = min(wait_s, pause_s(failures, self._rng))
                failures += 1
            else:
                heard_at_s, failures = time.monotonic(), 0
                if self._notebook.overflows:
                    wait_s = min(wait_s, BETWEEN_NOTES_S)
                self._write_counts()
            try:
                await asyncio.wait_for(now.wait(), wait_s)
            except TimeoutError:
                continue
        if self._counting is not None:
            await asyncio.wait({self._counting})
        if not failures:
            await self._rollup.write()  # what has ended since the last beat

    def _write_counts(self) -> None:
        """Beside the beats, which wait for nothing, and not with those that come early."""
        late_s = self._began_s - self._counted_s
        if late_s >= self._settings.beat_ms / 1000 * REGULAR and (self._counting is None or self._counting.done()):
            self._counted_s = self._began_s
            self._counting = asyncio.create_task(self._rollup.write(), name="limpet-counts")

    async def _beat(self) -> Pulse:
        notes = self._notebook.take()
        beat = Beat(self._session, self._settings.ttl_ms, self._serves, self._info(), notes)
        try:
            pulse = await self._store.beat(beat)
        except StoreError:
            self._notebook.put_back()
            raise
        self._notebook.written()
        return pulse


async def _ended(thread: threading.Thread, within_s: float) -> None:
    """Wait for a thread, and no longer; not in a pool, which handlers may have filled."""
    for _ in range(round(within_s / LOOK_S)):
        if not thread.is_alive():
            return
        await asyncio.sleep(LOOK_S)
