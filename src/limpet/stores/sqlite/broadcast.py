"""Carries live events: one datagram for each listener, to its socket in the folder of the wake-ups."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.bulletin import MOST_BYTES
from limpet.stores.base import Hear
from limpet.stores.sqlite.wake import Folder

PAUSES_S: Final = (0.002, 0.01, 0.03)  # a listener takes few datagrams at once (net.unix.max_dgram_qlen), and soon more
SLOW_S: Final = 1.0  # a listener that stayed full is not waited for so long
LOOK_S: Final = 5.0  # between two looks whether the name of a listener is still there


class Channel:
    """The listeners of one namespace of a file, or of one store in memory."""

    def __init__(self, path: str | None, namespace: str) -> None:
        self._folder = None if path is None else Folder(path)
        # What the names of its sockets begin with, and those of sockets for wake-ups do not.
        self._prefix = f"e{hashlib.blake2b(namespace.encode(), digest_size=4).hexdigest()}-"
        self._here: set[Listener] = set()  # of a store in memory
        self._slow: dict[str, float] = {}  # names of listeners that were full, until when they are not waited for

    async def publish(self, message: str) -> None:
        """Send to all that listen. A listener that stays full misses it."""
        for listener in list(self._here):
            listener.tell(message)
        if self._folder is None:
            return
        names = self._folder.names(self._prefix)
        for name in names:
            await self._send(self._folder, name, message.encode())
        self._slow = {name: until_s for name, until_s in self._slow.items() if name in names}

    async def _send(self, folder: Folder, name: str, message: bytes) -> None:
        if folder.deliver(name, message) != "full" or time.monotonic() < self._slow.get(name, 0.0):
            return
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            if folder.deliver(name, message) != "full":
                return
        self._slow[name] = time.monotonic() + SLOW_S

    def subscribe(self, hear: Hear) -> Callable[[], None]:
        """Have `hear` called in this loop until what is answered is called."""
        listener = Listener(hear, self._prefix)
        if self._folder is None:
            self._here.add(listener)
            return lambda: self._here.discard(listener)
        listener.bind(self._folder)
        return listener.close


class Listener:
    """One subscription, in the loop that asked for it."""

    def __init__(self, hear: Hear, prefix: str) -> None:
        self._hear = hear
        self._prefix = prefix
        self._loop = asyncio.get_running_loop()
        self._folder: Folder | None = None
        self._inbox: socket.socket | None = None
        self._name = ""
        self._later: asyncio.TimerHandle | None = None

    def tell(self, message: str) -> None:
        """A message of this process, from any loop."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._hear, message)

    def bind(self, folder: Folder) -> None:
        """Listen under a new name."""
        name = f"{self._prefix}{os.getpid():x}-{os.urandom(4).hex()}"
        inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            folder.make()
            folder.sweep()
            with folder.reach(name) as where:
                inbox.bind(where)
        except OSError as error:
            inbox.close()
            raise StoreUnreachable(
                f"cannot listen beside the file: {error}", verb="subscribe", fix="check the permissions of its folder"
            ) from error
        inbox.setblocking(False)
        self._loop.add_reader(inbox, self._readable, inbox)
        self._folder, self._name, self._inbox = folder, name, inbox
        self._later = self._loop.call_later(LOOK_S, self._look)

    def _readable(self, inbox: socket.socket) -> None:
        while True:
            try:
                message = inbox.recv(2 * MOST_BYTES)
            except OSError:
                return
            self._hear(message.decode("utf-8", "replace"))

    def _look(self) -> None:
        """Listen again when the name is gone, alone or with the whole folder."""
        folder = self._folder
        self._later = self._loop.call_later(LOOK_S, self._look)
        if folder is not None and not folder.has(self._name):
            self._unbind()
            with suppress(StoreUnreachable):  # the folder of the file itself is gone: look again later
                self.bind(folder)
                self._hear(None)

    def _unbind(self) -> None:
        inbox, self._inbox = self._inbox, None
        if self._later is not None:
            self._later.cancel()
        if inbox is not None:
            self._loop.remove_reader(inbox)
            inbox.close()

    def close(self) -> None:
        """Hear no more. Idempotent."""
        if self._inbox is not None and self._folder is not None:
            self._folder.remove(self._name)
        self._unbind()
