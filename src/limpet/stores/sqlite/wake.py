"""Carries wake-ups between processes: each binds one datagram socket, and a commit sends to sleepers."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from limpet.core.jobs.state import FINISHED, STATES, State
from limpet.stores.sqlite.tx import Tx
from limpet.stores.waiters import HANDED, Waiters, decode_handed

MAX_ADDRESS = 100  # sun_path holds 104 bytes on macOS, 108 on Linux
DESCRIPTORS = "/proc/self/fd"

Delivery = Literal["sent", "full", "gone"]  # of wake-ups: a full buffer is full of them already
SMALL_BYTES = 2_048  # what a datagram holds everywhere; macOS sends more only from a larger buffer


class WakeupReceiver(Waiters):
    """The place of one process where wake-ups arrive, from any process.

    Processes may see the folder of the file under different paths, in containers that share a volume. So an address
    is a name in the folder beside the file, which everyone finds under the path that the file has for them.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._socket: socket.socket | None = None
        self._folder = None if path is None else Folder(path)
        self._address = ""

    @property
    def address(self) -> str:
        """Where to send; bound on first use, because a process that only enqueues never needs to hear.

        Bound again when the socket's name is gone, alone or with the whole folder.
        """
        folder, before = self._folder, self._socket
        if folder is not None and not (self._address and folder.has(self._address)):
            with self._lock:
                if not (self._address and folder.has(self._address)):
                    self._bind_if_possible(folder)
            if before is not None:
                self.rouse()  # some may have been told under the name that is gone
        return self._address

    def _bind_if_possible(self, folder: Folder) -> None:
        try:
            self._bind(folder)
        except OSError:
            if not self._address:
                raise
            # The folder of the file itself may be gone: an outage, which the verb says.

    def _bind(self, folder: Folder) -> None:
        folder.make()
        folder.sweep()
        address = f"{os.getpid():x}-{os.urandom(4).hex()}"
        inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with folder.reach(address) as where:
            inbox.bind(where)
        threading.Thread(target=self._listen, args=(inbox,), name="limpet-inbox", daemon=True).start()
        before, self._socket, self._address = self._socket, inbox, address
        if before is not None:
            _shut(before)

    def _listen(self, inbox: socket.socket) -> None:
        while True:
            try:
                message = inbox.recv(SMALL_BYTES)
            except OSError:
                return
            if not message:
                return
            self._hear(message[:1], message[1:])

    def _hear(self, kind: bytes, said: bytes) -> bool:
        """A wake-up has come; False when it is for no session or caller that is here."""
        if kind != HANDED:
            self.deliver(kind, said)
            return True
        try:
            handed = decode_handed(said)
            return self.hand(handed.session, handed)
        except msgspec.DecodeError:
            return False  # of another release: the next beat tells that it is missing

    def send(self, address: str, kind: bytes, said: bytes) -> Delivery:
        """Send a wake-up: the name of a session or job, or the record of a job that was handed off. Never waits."""
        if address == self._address:
            return "sent" if self._hear(kind, said) else "gone"
        return "gone" if self._folder is None else self._folder.deliver(address, kind + said)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._socket is None or self._folder is None:
            return
        self._folder.remove(self._address)
        _shut(self._socket)
        self._socket = None


class Folder:
    """The sockets of everyone who uses one file, beside it, by their names."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wake"
        longest = len("e01234567-") + len(f"{os.getpid():x}-") + 8  # of a name
        self._is_long = len(os.fsencode(self._path)) + longest > MAX_ADDRESS
        if self._is_long and not os.path.isdir(DESCRIPTORS):
            # Only processes that know the file under the same path meet here, and containers do not.
            key = hashlib.blake2b(os.path.realpath(path).encode(), digest_size=8).hexdigest()
            self._path = os.path.join(tempfile.gettempdir(), f"limpet-{os.getuid()}-{key}")
            self._is_long = False

    def make(self) -> None:
        with suppress(FileExistsError):
            os.mkdir(self._path, mode=0o700)

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._path, name))

    @contextmanager
    def reach(self, name: str) -> Iterator[str]:
        """A path to that socket which is short enough for an address."""
        if not self._is_long:
            yield os.path.join(self._path, name)
            return
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"{DESCRIPTORS}/{folder}/{name}"
        finally:
            os.close(folder)

    def deliver(self, name: str, message: bytes) -> Delivery:
        """Send one datagram, and never wait. The socket of a process that died is removed."""
        try:
            with self.reach(name) as where, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                if len(message) > SMALL_BYTES:
                    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(message))
                out.sendto(message, where)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return "full"
            if error.errno == errno.ECONNREFUSED:
                self.remove(name)
            return "gone"
        return "sent"

    def names(self, prefix: str) -> list[str]:
        """The sockets whose names begin so."""
        try:
            return [name for name in os.listdir(self._path) if name.startswith(prefix)]
        except OSError:
            return []

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(os.path.join(self._path, name))

    def sweep(self) -> None:
        """Remove the sockets of processes that were killed.

        The socket is asked, not the pid in its name: a process of another container lives and has no pid here.
        """
        for name in os.listdir(self._path):
            with suppress(OSError), self.reach(name) as where, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                if out.connect_ex(where) == errno.ECONNREFUSED:
                    self.remove(name)


def _shut(inbox: socket.socket) -> None:
    with suppress(OSError):
        inbox.shutdown(socket.SHUT_RDWR)
    inbox.close()


def watch(tx: Tx, id: bytes, address: str) -> State | None:
    """Have the end of a job told to `address`; its state now, None when it is gone."""
    row = tx.row("job_state", (id,))
    if row is None:
        return None
    state: State = STATES[row[0]]
    if state not in FINISHED:
        tx.run("job_watch", (id,))
        tx.run("watch_put", (id, address))
    return state
