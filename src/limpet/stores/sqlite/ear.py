"""Carries wake-ups between processes: each binds one datagram socket, and a commit tells whom it concerns."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import tempfile
import threading
from contextlib import suppress

from limpet.stores.waiters import CANCEL, FINISHED, URGENT, WORK, Waiters, wake_of

__all__ = ["CANCEL", "FINISHED", "URGENT", "WORK", "Ear", "wake_of"]

MAX_ADDRESS = 100  # sun_path holds 104 bytes on macOS, 108 on Linux


class Ear(Waiters):
    """The place of one process where wake-ups arrive, whoever sent them."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._socket: socket.socket | None = None
        self._path = path
        self._address = ""

    @property
    def address(self) -> str:
        """Where to send; bound on first use, because a process that only enqueues never needs to hear."""
        if self._path is not None and not self._address:
            with self._lock:
                if not self._address:
                    self._bind(self._path)
        return self._address

    def _bind(self, path: str) -> None:
        name = f"{os.getpid():x}-{os.urandom(4).hex()}"
        folder = f"{path}-wake"
        if len(folder) + len(name) + 1 > MAX_ADDRESS:
            key = hashlib.blake2b(os.path.realpath(path).encode(), digest_size=8).hexdigest()
            folder = os.path.join(tempfile.gettempdir(), f"limpet-{os.getuid()}-{key}")
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        _sweep(folder)
        address = os.path.join(folder, name)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        threading.Thread(target=self._listen, args=(self._socket,), name="limpet-ear", daemon=True).start()
        self._address = address

    def _listen(self, inbox: socket.socket) -> None:
        while True:
            try:
                message = inbox.recv(256)
            except OSError:
                return
            if not message:
                return
            self.deliver(message[:1], message[1:])

    def tell(self, address: str, kind: bytes, name: bytes) -> bool:
        """Send a wake-up; False when nobody lives at that address any more."""
        if address == self._address:
            self.deliver(kind, name)
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.sendto(kind + name, address)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return True  # its buffer is full of wake-ups already
            with suppress(OSError):
                if error.errno == errno.ECONNREFUSED:
                    os.unlink(address)
            return False
        return True

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._socket is None:
            return
        with suppress(OSError):
            os.unlink(self._address)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._socket = None


def _sweep(folder: str) -> None:
    """Remove the sockets of processes that were killed."""
    for name in os.listdir(folder):
        with suppress(OSError, ValueError):
            try:
                os.kill(int(name.split("-")[0], 16), 0)
            except ProcessLookupError:
                os.unlink(os.path.join(folder, name))
