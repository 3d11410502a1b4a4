"""A real, private Redis or Valkey server on a free port, to be killed, frozen and started again at will."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import hiredis

from tests.servers.flavours import Flavour, program
from tests.servers.process import Unreachable, free_port, fresh_folder, tied_to_parent

Aof = Literal["everysec", "always"]

START_S = 10.0  # a start takes 10 ms; a busy machine with a long log to read may need seconds

_running: set[RedisServer] = set()


class RedisServer:
    """One server process. It ends with the thread that started it, and so with pytest, however that ends."""

    def __init__(
        self,
        flavour: Flavour,
        folder: Path,
        *,
        aof: Aof | None = None,
        args: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        self.flavour = flavour
        self.folder = folder
        self.port = port or free_port()
        self._chosen = port is not None
        self.aof = aof
        self._args = tuple(args)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # -- life

    def start(self) -> RedisServer:
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
        raise Unreachable(f"{self.flavour} on port {self.port} did not start: {self.log()[-2_000:]}")

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.alive, "the server runs already"
        # The kernel ends a child with the *thread* that started it; a pool's thread would take the server with it.
        assert threading.current_thread() is threading.main_thread(), "servers are started by the main thread"
        self.folder.mkdir(parents=True, exist_ok=True)
        found = program(self.flavour)
        self._process = subprocess.Popen(
            [*tied_to_parent(), str(found.path), *self.words()],
            env=found.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _running.add(self)

    def words(self) -> list[str]:
        """The options of its command line."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        words += ["--logfile", str(self.folder / "server.log")]
        if self.aof:
            words += ["--appendonly", "yes", "--appendfsync", self.aof]
        return words + list(self._args)

    def stop(self) -> None:
        """Let it end in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would end its process: no last write, no goodbye."""
        self._end(signal.SIGKILL)

    def restart(self) -> RedisServer:
        """Start it on the same port and data; one that still runs is ended in good order first."""
        self.stop()
        return self.start()

    def kill_when_written(self) -> None:
        """Kill it when its log holds all that it acknowledged.

        A log that is flushed every second is not even written while a flush of the disk is under way (for up to two
        seconds): a kill at that moment costs what was acknowledged since, and that is Redis, not us.
        """
        deadline_s = time.monotonic() + START_S
        while b"aof_buffer_length:0\r\n" not in self.ask("INFO", "persistence"):
            assert time.monotonic() < deadline_s, "the log is never written"
            time.sleep(0.005)
        self.kill()

    def freeze(self) -> None:
        """Stop it in its tracks: the kernel still accepts connections, and nobody answers them."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)  # a frozen process hears SIGTERM only when it is thawed
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        _running.discard(self)

    # -- asking

    def ask(self, *words: str | bytes | int, timeout_s: float = 5.0) -> Any:
        """One command on a connection of its own; an error of the server is raised."""
        with contextlib.closing(self._connect(timeout_s)) as line:
            return exchange(line, words)

    def answers(self) -> bool:
        """True when it is this process that answers, and with its data loaded."""
        try:
            said = self.ask("INFO", "server", timeout_s=0.5)
            return f"process_id:{self.pid}\r\n".encode() in said and self.ask("PING", timeout_s=0.5) == b"PONG"
        except (Unreachable, hiredis.ReplyError):  # LOADING is an error too
            return False

    def log(self) -> str:
        """What it wrote about itself."""
        file = self.folder / "server.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _answers_in_time(self) -> bool:
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and self.alive:
            if self.answers():
                return True
            time.sleep(0.002)
        return False

    def _connect(self, timeout_s: float) -> socket.socket:
        try:
            return socket.create_connection(("127.0.0.1", self.port), timeout_s)
        except OSError as error:
            raise Unreachable(f"port {self.port}: {error}") from error


def exchange(line: socket.socket, words: Sequence[str | bytes | int]) -> Any:
    """Send one command and read its answer."""
    reader = hiredis.Reader()
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    try:
        line.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
        while (answer := reader.gets()) is False:
            received = line.recv(65_536)
            if not received:
                raise Unreachable("the server hung up")
            reader.feed(received)
    except OSError as error:
        raise Unreachable(str(error)) from error
    if isinstance(answer, hiredis.ReplyError):
        raise answer
    return answer


@atexit.register
def _stop_all() -> None:
    for server in list(_running):
        server.kill()


# -- for tests: one that all share, and one for each that wants to kill it


@cache
def shared(flavour: Flavour) -> RedisServer:
    """The server of this flavour that all tests of a process share, each in a namespace of its own.

    Without a log: meaning is tested on it, not durability.
    """
    return RedisServer(flavour, fresh_folder("hf-redis-")).start()


@contextlib.contextmanager
def running(server: RedisServer) -> Iterator[RedisServer]:
    """Start a server for as long as the block lasts."""
    try:
        yield server.start()
    finally:
        server.kill()


@contextlib.contextmanager
def own(flavour: Flavour, *, aof: Aof | None = None, args: Sequence[str] = ()) -> Iterator[RedisServer]:
    """A server for one test alone, in memory, to be killed and started again."""
    with running(RedisServer(flavour, fresh_folder("hf-redis-"), aof=aof, args=args)) as server:
        yield server
    shutil.rmtree(server.folder, ignore_errors=True)
