"""Decides what signals mean to a process that ends in order: an order while it works, nothing once it is ending."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeyed(told: Callable[[], None], numbers: Collection[signal.Signals] = STOPS) -> Iterator[None]:
    """Call `told` in the running loop for each of these signals; from the end of the block on they are ignored.

    Only a process that ends after the block may use it. A loop that closes would bring back Python's own handlers:
    a signal that comes then ends the process with a traceback and another exit code, though all of its work is done.
    """
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # between the two calls Python's own handler is set
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
