"""A real, private Redis or Valkey server on a free port, to be killed, frozen and started again at will."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import hiredis

from tests.servers.flavours import Flavour, program
from tests.servers.process import START_S, PrivateServer, Unreachable, fresh_folder
from tests.servers.process import running as running

Aof = Literal["everysec", "always"]


class RedisServer(PrivateServer):
    """A Redis or Valkey in a folder; a log of what it does is kept there when it is asked for."""

    def __init__(
        self,
        flavour: Flavour,
        folder: Path,
        *,
        aof: Aof | None = None,
        args: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        super().__init__(flavour, folder, port)
        self.flavour = flavour
        self.aof = aof
        self._args = tuple(args)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(program(self.flavour).path), *self.words()]

    def environment(self) -> dict[str, str]:
        return program(self.flavour).environment()

    def words(self) -> list[str]:
        """The options of its command line."""
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        words += ["--logfile", str(self.folder / "server.log")]
        if self.aof:
            words += ["--appendonly", "yes", "--appendfsync", self.aof]
        return words + list(self._args)

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

    # -- asking

    def ask(self, *words: str | bytes | int, timeout_s: float = 30.0) -> Any:
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


# -- for tests: one that all share, and one for each that wants to kill it


@cache
def shared(flavour: Flavour) -> RedisServer:
    """The server of this flavour that all tests of a process share, each in a namespace of its own.

    Without a log: meaning is tested on it, not durability.
    """
    return RedisServer(flavour, fresh_folder("limpet-redis-")).start()


@contextlib.contextmanager
def own(flavour: Flavour, *, aof: Aof | None = None, args: Sequence[str] = ()) -> Iterator[RedisServer]:
    """A server for one test alone, in memory, to be killed and started again."""
    with running(RedisServer(flavour, fresh_folder("limpet-redis-"), aof=aof, args=args)) as server:
        yield server
    shutil.rmtree(server.folder, ignore_errors=True)
