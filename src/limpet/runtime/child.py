"""The program of a worker's child process: runs one Worker and does what its supervisor says."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from limpet.runtime.loading import load_app
from limpet.runtime.log import setup_logging, worker_log
from limpet.runtime.orders import (
    CUT_OFF,
    FAILED,
    RECYCLED,
    STOPPED,
    Begin,
    GivenUp,
    Halt,
    Leaving,
    Ready,
    SessionLost,
    ToSupervisor,
    to_child,
)
from limpet.runtime.patience import Patience
from limpet.runtime.roster import Roster
from limpet.runtime.settings import App, AppRef, WorkerCutOff
from limpet.runtime.wire import frame, read_frame
from limpet.runtime.worker import Worker
from limpet.stores.asking import last_seq

T = TypeVar("T")


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


async def serve(control: socket.socket, roster_descriptor: int) -> int:
    """Run the worker that the supervisor describes; the exit code says how it ended."""
    reader, writer = await asyncio.open_connection(sock=control)
    body = await read_frame(reader)
    begin = None if body is None else to_child.decode(body)
    if not isinstance(begin, Begin):
        return STOPPED  # the supervisor died before it could speak
    setup_logging(begin.log, begin.log_level)
    sys.path[:] = [*begin.path, *(entry for entry in sys.path if entry not in begin.path)]
    roster = Roster(roster_descriptor, begin.lines)
    roster.turn()
    try:
        app = load_app(begin.app_ref)
        if begin.url is not None or begin.namespace is not None:
            app.rebind(begin.url, namespace=begin.namespace)
        worker = _worker(app, begin, roster)
    except Exception as error:
        worker_log(
            logging.CRITICAL, "the app cannot be loaded", app=begin.app_ref, error=f"{type(error).__name__}: {error}"
        )
        return FAILED

    def send(message: ToSupervisor) -> None:
        if not writer.is_closing():
            writer.write(frame(message))

    heard = 0

    async def introduce() -> None:
        nonlocal heard
        patience = Patience(random.Random(), begin.settings.cut_off_ms)
        await patience.ask("publish", app.publish)
        heard = await patience.ask("read", lambda: last_seq(app.store, "event"))

    worker.before = introduce
    worker.on_ready = lambda: send(Ready(app.url, app.namespace, worker.serves, worker.info(), heard))
    worker.on_leaving = lambda: send(Leaving())
    worker.on_given_up = lambda transition: send(GivenUp(transition))
    # Not before: until the app is loaded the process holds nothing, and the signal ends it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    orders = asyncio.create_task(_obey(reader, worker))
    try:
        return await _work(worker)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway, and how it ended is in its exit code
        orders.cancel()
        await app.store.close()
        writer.close()


def _worker(app: App, begin: Begin, roster: Roster) -> Worker:
    parts = app.parts()
    return Worker(
        app.store,
        parts.tasks,
        begin.settings,
        resources=parts.resources,
        hooks=parts.hooks,
        middleware=parts.middleware,
        classifiers=parts.classifiers,
        schedules=parts.schedules,
        app_ref=AppRef(begin.app_ref, app.url, app.namespace),
        session=begin.session,
        roster=roster,
    )


async def _work(worker: Worker) -> int:
    try:
        report = await worker.run()
    except WorkerCutOff as error:
        worker_log(logging.CRITICAL, "cut off from the store", error=error)
        return CUT_OFF
    except Exception as error:
        worker_log(logging.CRITICAL, "worker failed", error=f"{type(error).__name__}: {error}")
        return FAILED
    return RECYCLED if report.ending == "recycled" else STOPPED


async def _obey(reader: asyncio.StreamReader, worker: Worker) -> None:
    while (body := await read_frame(reader)) is not None:
        match to_child.decode(body):
            case Halt(force=True):
                worker.force()
            case Halt():
                worker.stop()
            case SessionLost():
                worker.lost_session()
    worker_log(logging.WARNING, "supervisor is gone, stopping")
    worker.stop()


def main(control_descriptor: int, roster_descriptor: int) -> int:
    """Serve until told to stop, or until the supervisor dies."""
    # The supervisor relays signals; one sent to the whole group must not count twice.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was started deaf to it
    return run_loop(serve(socket.socket(fileno=control_descriptor), roster_descriptor))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
