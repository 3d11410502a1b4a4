"""The program of a worker's child process: runs one Worker and does what its supervisor says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from limpet.core.endings.failure import traceback_of
from limpet.core.errors import LimpetError, StoreError
from limpet.runtime.attempt import end_of_copy
from limpet.runtime.background import background
from limpet.runtime.child_messages import (
    CUT_OFF,
    FAILED,
    RECYCLED,
    STOPPED,
    Begin,
    GivenUp,
    Halt,
    Leaving,
    Look,
    Ready,
    Seen,
    SessionLost,
    ToSupervisor,
    Unwritten,
    frame,
    read_frame,
    to_child,
)
from limpet.runtime.loading import load_app
from limpet.runtime.log import worker_log
from limpet.runtime.log_setup import AppLogging
from limpet.runtime.loop_monitor import LoopMonitor
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.reporter import Reporter
from limpet.runtime.roster import Roster
from limpet.runtime.settings import App, AppRef, WorkerCutOff, WorkerEvents, WorkerPlan
from limpet.runtime.signals import obeyed
from limpet.runtime.worker import Worker
from limpet.stores.asking import last_seq

T = TypeVar("T")

LET_GO_S: Final = 2.0  # for each thing that may hold up the end
EXIT_S: Final = 5.0  # then the process ends, whatever its threads do


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed, until the coroutine has ended: a handler that stops the loop does not."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    os.register_at_fork(after_in_child=partial(_end_copy, sys._getframe()))
    main = background(coroutine, "limpet-child", loop)
    main.add_done_callback(lambda _: loop.stop())
    while not main.done():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            worker_log(logging.ERROR, "code of a handler tried to end the process, continuing", error=repr(error))
        else:
            if not main.done():
                worker_log(logging.ERROR, "code of a handler stopped the loop, continuing")
    _let_go(loop)
    return main.result()


def _end_copy(running: FrameType) -> None:
    """In a copy of this process that code on the loop forked: end when that code returns to the loop.

    What the loop would do next, in the same turn, is to write what both have buffered, and to start jobs. Code that
    works in the copy, and ends it itself, never comes so far. `running` is the frame that runs the loop.
    """
    frame, outermost = sys._getframe().f_back, None
    while frame is not running:
        if frame is None:
            return  # forked by a thread, whose copy has no loop that turns
        if not frame.f_globals.get("__name__", "").startswith("asyncio."):  # the loop's own, where it is not uvloop
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        end_of_copy()

    def returns(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame is outermost:
            end_of_copy()

    sys.setprofile(returns)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    """End what handlers have left in the loop, for as long as that helps."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()

    async def ended() -> None:
        if left:
            await asyncio.wait(left, timeout=LET_GO_S)
        async with asyncio.timeout(LET_GO_S):
            await loop.shutdown_asyncgens()

    with contextlib.suppress(Exception):
        loop.run_until_complete(ended())


async def serve(control: socket.socket, roster_descriptor: int) -> int:
    """Run the worker that the supervisor describes; the exit code says how it ended."""
    reader, writer = await asyncio.open_connection(sock=control)
    body = await read_frame(reader)
    begin = None if body is None else to_child.decode(body)
    if not isinstance(begin, Begin):
        return STOPPED  # the supervisor died before it could speak
    logs = AppLogging(begin.log)
    sys.path[:] = [*begin.path, *(entry for entry in sys.path if entry not in begin.path)]
    roster = Roster(roster_descriptor, begin.lines)
    roster.turn()
    monitor = LoopMonitor(roster, begin.settings.ttl_ms)
    monitor.start()
    code = FAILED
    try:
        code = await _serve(begin, logs, monitor, reader, writer)
        return code
    finally:
        roster.say(code)


async def _serve(
    begin: Begin, logs: AppLogging, monitor: LoopMonitor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> int:
    try:
        app = load_app(begin.app_ref)
        logs.complete()
        if begin.url is not None or begin.namespace is not None:
            app.rebind(begin.url, namespace=begin.namespace)
        plan = _plan(app, begin, logs, monitor, writer)
        worker = Worker(plan)
    except Exception as error:
        first, _, _ = f"{type(error).__name__}: {error}".partition("\n")
        told = traceback_of(error.__cause__ or error)
        worker_log(logging.CRITICAL, "the app cannot be loaded", app=begin.app_ref, error=first, traceback=told)
        return FAILED

    async def look(order: Look) -> None:
        entries = None
        with contextlib.suppress(StoreError):
            entries = await app.store.read("event", order.after, order.most)
        _send(writer, Seen(order.after, entries))

    reporter = Reporter(worker, partial(_send, writer)) if begin.metrics else None
    reporting = None if reporter is None else background(reporter.live(), "limpet-report")
    obeying = background(_obey(reader, worker, look), "limpet-obey")
    try:
        # Not before: until the app is loaded the process holds nothing, and the signal ends it. From here on the
        # supervisor says when to stop; any other sender gets the end that it asks for, at the cost of what does not
        # finish.
        with obeyed(partial(worker.stop, ordered=False), [signal.SIGTERM]):
            return await _work(worker)
    finally:
        if reporter is not None and reporting is not None:
            reporting.cancel()
            reporter.report()  # what has come since its last word
        obeying.cancel()
        with contextlib.suppress(Exception):
            await app.store.close()
        with contextlib.suppress(Exception):
            writer.close()
            async with asyncio.timeout(LET_GO_S):
                await writer.wait_closed()  # all that the supervisor was told must reach it


def _send(writer: asyncio.StreamWriter, message: ToSupervisor) -> None:
    if not writer.is_closing():
        writer.write(frame(message))


def _plan(app: App, begin: Begin, logs: AppLogging, monitor: LoopMonitor, writer: asyncio.StreamWriter) -> WorkerPlan:
    """The worker that the supervisor described; it tells the supervisor what becomes of it."""
    heard = 0
    send = partial(_send, writer)
    parts = app.parts()  # first: where the app is broken, nothing else is of interest

    async def introduce() -> None:
        nonlocal heard
        store = PatientStore(app.store, random.Random(), begin.settings.cut_off_ms)
        await store.ask("publish", app.publish)
        heard = await store.ask("read", partial(last_seq, app.store, "event"))

    def ready(info: bytes) -> None:
        logs.mend()
        send(Ready(app.url, app.namespace, plan.serves, info, heard))

    plan = WorkerPlan(
        store=app.store,
        parts=parts,
        settings=begin.settings,
        app_ref=AppRef(begin.app_ref, app.url, app.namespace),
        log=begin.log,
        session=begin.session,
        roster=monitor.roster,
        metrics=begin.metrics,
        monitor=monitor,
        events=WorkerEvents(
            before=introduce,
            on_ready=ready,
            on_leaving=lambda: send(Leaving()),
            on_given_up=lambda transition: send(GivenUp(transition)),
            on_unwritten=lambda ends, spent: send(Unwritten(ends, spent)),
            on_other_store=app.publish,
        ),
    )
    return plan


async def _work(worker: Worker) -> int:
    try:
        report = await worker.run()
    except WorkerCutOff as error:
        worker_log(logging.CRITICAL, "cut off from the store", error=error)
        return CUT_OFF
    except (Exception, asyncio.CancelledError) as error:
        ours = isinstance(error, LimpetError)  # says all itself; of a part that died the log has the traceback already
        where = {} if ours else {"traceback": traceback_of(error)}
        worker_log(logging.CRITICAL, "worker failed", error=f"{type(error).__name__}: {error}", **where)
        return FAILED
    return RECYCLED if report.ending == "recycled" else STOPPED


async def _obey(
    reader: asyncio.StreamReader, worker: Worker, look: Callable[[Look], Coroutine[Any, Any, None]]
) -> None:
    looks: set[asyncio.Task[None]] = set()
    while (body := await read_frame(reader)) is not None:
        match to_child.decode(body):
            case Halt(force=True):
                worker.force()
            case Halt(ordered=ordered):
                worker.stop(ordered=ordered)
            case SessionLost():
                worker.lost_session()
            case Look() as order:
                looking = background(look(order), "limpet-look")
                looks.add(looking)
                looking.add_done_callback(looks.discard)
    worker_log(logging.WARNING, "supervisor is gone, stopping")
    worker.stop(ordered=False)


def main(control_descriptor: int, roster_descriptor: int) -> int:
    """Serve until told to stop, or until the supervisor dies."""
    # The supervisor relays signals; one sent to the whole group must not count twice.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was started deaf to it
    code = FAILED
    try:
        code = run_loop(serve(socket.socket(fileno=control_descriptor), roster_descriptor))
    finally:
        # Threads and exit functions of handlers may hold up the end of the interpreter for ever.
        last = threading.Timer(EXIT_S, os._exit, [code])
        last.daemon = True
        last.start()
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
