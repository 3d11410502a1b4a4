"""The app of the misdeeds: one task per kind of handler, and a table of what such a handler may do to its process."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import contextlib
import ctypes
import errno
import gc
import inspect
import logging
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from limpet import Limpet
from tests.chaos.chaos_jobs import leave_trace

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))
KEPT: list[Any] = []  # by handlers that never let go
ROOM_BYTES = 96 << 20  # what a handler that fills something may fill before the kernel says no

Misdeed = Callable[[], Awaitable[object] | object]
IN_LOOP: dict[str, Misdeed] = {}
IN_THREAD: dict[str, Misdeed] = {}


def in_loop(misdeed: Misdeed) -> Misdeed:
    IN_LOOP[misdeed.__name__] = misdeed
    return misdeed


def in_thread(misdeed: Misdeed) -> Misdeed:
    IN_THREAD[misdeed.__name__] = misdeed
    return misdeed


# Whatever it does, it has two attempts and two seconds for each: what is left is what it does to others.
@app.task(name="culprit", retry=[0], timeout=1.5, hard_timeout=2, max_lost=5)
async def culprit(name: str) -> None:
    leave_trace("culprit")
    done = IN_LOOP[name]()
    if isinstance(done, Awaitable):
        await done


@app.task(name="culprit_in_thread", retry=[0], timeout=1.5, hard_timeout=2, max_lost=5)
def culprit_in_thread(name: str) -> None:
    leave_trace("culprit")
    IN_THREAD[name]()


# As it was: a handler that breaks asyncio breaks the calls of its neighbours too, until its process is gone.
rest = asyncio.sleep


@app.task(name="neighbour", retry=[0, 0, 0, 0])
async def neighbour(ms: int) -> None:
    be_seen()
    await rest(ms / 1000)


@app.task(name="neighbour_in_thread", retry=[0, 0, 0, 0])
def neighbour_in_thread(ms: int) -> None:
    be_seen()
    time.sleep(ms / 1000)


def be_seen() -> None:
    try:
        leave_trace("neighbour")
    except OSError as error:
        if error.errno != errno.EFBIG:  # of which only what a worker itself writes is its matter
            raise


async def for_ever() -> None:
    await asyncio.Event().wait()


# -- its tasks and its loop


@in_loop
async def cancels_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0.1)


@in_loop
async def cancels_all_other_tasks() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@in_loop
async def cancels_every_task_in_memory() -> None:
    for found in gc.get_objects():
        if isinstance(found, asyncio.Task):
            with contextlib.suppress(RuntimeError):  # of another thread's loop
                found.cancel()
    await asyncio.sleep(0.1)


@in_loop
async def cancels_its_task_later() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.1, task.cancel)


@in_loop
async def swallows_every_cancellation() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@in_loop
async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()


@in_loop
async def stops_the_loop_and_waits() -> None:
    asyncio.get_running_loop().stop()
    await for_ever()


@in_loop
async def closes_the_loop() -> None:
    asyncio.get_running_loop().close()


@in_loop
async def exits_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.1)


@in_loop
async def exits_in_a_task() -> None:
    async def leave() -> NoReturn:
        sys.exit(0)

    KEPT.append(asyncio.create_task(leave()))
    await asyncio.sleep(0.1)


@in_loop
async def interrupts_in_a_callback() -> None:
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    asyncio.get_running_loop().call_soon(interrupt)
    await asyncio.sleep(0.1)


@in_loop
async def sets_a_task_factory() -> None:
    def factory(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("no tasks today")

    asyncio.get_running_loop().set_task_factory(factory)


@in_loop
def blocks_the_loop() -> None:
    time.sleep(3)  # more than two leases of the tests


@in_loop
def blocks_the_loop_for_ever() -> None:
    while True:
        time.sleep(60)


@in_loop
def spins_for_ever() -> None:
    while True:
        pass


# -- its files


@in_loop
def closes_all_files() -> None:
    os.closerange(3, 4096)


@in_thread
def closes_all_files_in_a_thread() -> None:
    os.closerange(3, 4096)


@in_loop
def puts_other_files_in_place() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.dup2(nothing, descriptor)


@in_loop
def closes_its_standard_files() -> None:
    sys.stdout.close()
    sys.stderr.close()
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            os.close(descriptor)


@in_loop
def opens_files_without_end() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    with contextlib.suppress(OSError):
        while True:
            KEPT.append(os.open(os.devnull, os.O_RDONLY))


@in_loop
def may_write_no_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@in_loop
def works_in_a_folder_that_is_gone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


# -- its processes and signals


@in_loop
def forks_and_returns() -> None:
    os.fork()


@in_loop
async def forks_and_waits() -> None:
    os.fork()
    await asyncio.sleep(0.1)


@in_thread
def forks_and_returns_in_a_thread() -> None:
    os.fork()


@in_loop
async def forks_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(os.fork)
    await asyncio.sleep(0.1)


@in_loop
async def forks_in_a_function_of_a_callback() -> None:
    def fork() -> None:
        os.fork()

    asyncio.get_running_loop().call_soon(fork)
    await asyncio.sleep(0.1)


@in_loop
def ignores_all_signals() -> None:
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)


@in_loop
def blocks_all_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@in_loop
async def sets_an_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    await for_ever()


@in_loop
def terminates_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@in_loop
async def terminates_itself_and_waits() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await for_ever()


@in_loop
def kills_its_group() -> None:
    os.killpg(0, signal.SIGKILL)


@in_loop
def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@in_loop
def becomes_another_program() -> None:
    os.execv("/bin/sleep", ["sleep", "600"])


@in_loop
def ends_its_process_well() -> None:
    os._exit(0)


@in_loop
def ends_its_process_as_if_cut_off() -> None:
    os._exit(5)


@in_loop
def ends_its_process_as_if_recycled() -> None:
    os._exit(75)


@in_loop
def aborts() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


@in_loop
def reads_where_nothing_is() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


@in_loop
def hangs_at_exit() -> None:
    atexit.register(time.sleep, 600)
    os.kill(os.getpid(), signal.SIGTERM)


# -- its threads


@in_thread
def starts_threads_without_end() -> None:
    _small_room()
    with contextlib.suppress(RuntimeError, MemoryError):
        while True:
            threading.Thread(target=threading.Event().wait, daemon=True).start()


@in_thread
def leaves_a_thread_that_never_ends() -> None:
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    os.kill(os.getpid(), signal.SIGTERM)


@in_loop
def ends_the_heartbeat() -> None:
    _end_threads("limpet-keeper")


@in_loop
def ends_all_threads() -> None:
    _end_threads("")


@in_loop
def holds_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(600)  # as a C extension does that forgets to let go


# -- its interpreter


@in_loop
def breaks_asyncio() -> None:
    for name in ("sleep", "wait", "wait_for", "timeout", "create_task", "Event"):
        setattr(asyncio, name, None)


@in_loop
def breaks_the_clock() -> None:
    for name in ("monotonic", "time", "monotonic_ns", "time_ns", "perf_counter"):
        setattr(time, name, lambda: 0)


@in_loop
def breaks_builtins() -> None:
    for name in ("len", "isinstance", "list", "getattr"):
        setattr(builtins, name, None)


@in_loop
def breaks_logging() -> None:
    class Loud(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no log today")

    logging.getLogger("limpet").addHandler(Loud())


@in_loop
def forgets_all_modules() -> None:
    sys.modules.clear()
    sys.path.clear()


@in_loop
def clears_the_environment() -> None:
    os.environ.clear()


@in_loop
def allows_no_depth() -> None:
    sys.setrecursionlimit(len(inspect.stack()) + 12)


@in_loop
def raises_in_every_call() -> None:
    def trace(*_: Any) -> NoReturn:
        raise RuntimeError("no calls today")

    sys.settrace(trace)
    threading.settrace(trace)


@in_loop
def fills_its_memory() -> None:
    _small_room()
    while True:
        KEPT.append(bytearray(1 << 16))


@in_loop
async def closes_the_store() -> None:
    await app.store.close()


@in_loop
def uses_up_its_time() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1, resource.RLIM_INFINITY))
    spins_for_ever()


def _small_room() -> None:
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM_BYTES, now + ROOM_BYTES))


def _end_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(name) and thread is not threading.main_thread() and thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
