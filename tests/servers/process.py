"""A real, private server process on a free port, which ends with whoever started it."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self, TypeVar

from tests.servers.servant import Credentials

# Below the ports that a kernel gives to outgoing connections, or one of those could sit on the port of a
# server that is down; and a cluster's bus, at port + 10,000, still fits below them.
PORTS: Final = range(12_000, 22_000)
BLOCK: Final = 200  # ports that a process has to itself
START_S: Final = 60.0  # a start takes 10 to 100 ms; a busy machine with a long log to read may need many seconds
END_S: Final = 60.0
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30  # a container may have 64 MB of it, which the data of one PostgreSQL would fill

_running: set[PrivateServer] = set()
_claims: list[socket.socket] = []


class Unreachable(Exception):
    """The server refuses connections, or does not answer in time."""


class PrivateServer(ABC):
    """One server process. It ends with the thread that started it, and so with pytest, however that ends."""

    stop_signal = signal.SIGTERM  # lets it end in good order
    orphan_signal = signal.SIGKILL  # what the kernel sends when the thread that started it is gone

    def __init__(self, name: str, folder: Path, port: int | None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._name = name
        self._chosen = port is not None
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its words."""

    @abstractmethod
    def answers(self) -> bool:
        """True when it is this process that answers, and with its data loaded."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def credentials(self) -> Credentials:
        """Who runs it: we do."""
        return {}

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it wrote about itself."""
        file = self.folder / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    # -- life

    def start(self) -> Self:
        """Start it and wait until it answers; where the port was taken meanwhile, another one is chosen."""
        for _ in range(5):
            self.launch()
            if self._answers_in_time():
                self._chosen = True
                return self
            self.kill()
            if self._chosen:
                break
            self.port = free_port()
        raise Unreachable(f"{self._name} on port {self.port} did not start: {self.log()[-2_000:]}")

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.alive, "the server runs already"
        # The kernel ends a child with the *thread* that started it; a pool's thread would take the server with it.
        assert threading.current_thread() is threading.main_thread(), "servers are started by the main thread"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_tied_to_parent(self.orphan_signal), *self.command()],
                env=self.environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self.credentials(),
            )
        _running.add(self)

    def stop(self) -> None:
        """Let it end in good order."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End it as a power cut would end its process: no last write, no goodbye."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Start it on the same port and data; one that still runs is ended in good order first."""
        self.stop()
        return self.start()

    def discard(self) -> None:
        """End it for good: nobody will ask for its data again."""
        self.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: the kernel still accepts connections, and nobody answers them."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None, "the server was not started"
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: int) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)
            self.thaw()  # a frozen process hears most signals only when it is thawed
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                assert number != signal.SIGKILL, f"{self._name} survives kill -9"
                self.kill()
        _running.discard(self)

    def _answers_in_time(self) -> bool:
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and self.alive:
            if self.answers():
                return True
            time.sleep(0.002)
        return False


Server = TypeVar("Server", bound=PrivateServer)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server for as long as the block lasts."""
    try:
        yield server.start()
    finally:
        server.discard()


def free_port() -> int:
    """A port on which nobody listens now, and which no other test process takes while a server is down."""
    ports = _own_ports(os.getpid())
    for _ in range(BLOCK):
        port = next(ports)
        with contextlib.suppress(OSError), contextlib.closing(_bound(port)):
            return port
    raise Unreachable(f"all {BLOCK} ports that this process has to itself are taken")


@cache
def _own_ports(pid: int) -> Iterator[int]:
    """A block's ports in turn: the one that was given out last comes last. Whoever binds its first port has the block,
    for as long as the process lives."""
    for first in random.sample(PORTS[::BLOCK], len(PORTS) // BLOCK):
        with contextlib.suppress(OSError):
            _claims.append(_bound(first))
            return cycle(range(first + 1, first + BLOCK))
    raise Unreachable(f"every block of {BLOCK} ports of {PORTS} is taken")


def _bound(port: int) -> socket.socket:
    """A socket on a port of ours. Raises OSError when somebody else is there."""
    bound = socket.socket()
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound


def fresh_folder(prefix: str) -> Path:
    """A fresh folder, in memory where there is some: a kill of a process shows there what it shows on a disk, and no
    other program's flushes stand in the way. It goes when this process ends."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    folder = Path(mkdtemp(prefix=prefix, dir=MEMORY if roomy else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _tied_to_parent(number: signal.Signals) -> list[str]:
    """On Linux: the words before a command that make the kernel end it with the thread that started it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", number.name.removeprefix("SIG"), "--"] if setpriv else []


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.discard()
