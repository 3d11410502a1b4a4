"""Lets Ctrl-C reach the tests and the programs that they start, also where a script has started the tests with `&`.

A shell without job control starts such programs with SIGINT ignored; Python and every program that is started from
there then leave it so, and no test of Ctrl-C could pass.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def heed_interrupts() -> None:
    """From now on SIGINT interrupts this process, and those that it starts have the usual handling again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def same_process() -> Iterator[None]:
    """Undo at the end what a command does to its process, which ends with it: signals ignored, levels of logs set."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    levels = {logger: logger.level for logger in (logging.getLogger(), logging.getLogger("limpet"))}
    yield
    for logger, level in levels.items():
        logger.setLevel(level)
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
