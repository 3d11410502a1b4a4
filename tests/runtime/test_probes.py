"""What a worker tells those who watch it: probes over HTTP, and systemd's own socket."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from limpet import Limpet
from limpet.core.errors import InvalidOption, UsageError
from limpet.core.text.place import Place, place_of
from limpet.runtime.child_messages import CUT_OFF, STOPPED
from limpet.runtime.health import Health
from limpet.runtime.probe import ProbeServer, answer, probed
from limpet.runtime.service_manager import ServiceManager
from limpet.runtime.settings import WorkerSettings
from limpet.runtime.small_server import HEAD_BYTES
from limpet.runtime.supervisor import Supervisor, SupervisorSettings

WITHIN_S = 60.0
LEASE_MS, BEAT_MS = 1_000, 200
HERE = Place("127.0.0.1", 0)
LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


async def ask(place: Place, path: str) -> tuple[int, str]:
    """The status, and what is wrong."""
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), msgspec.json.decode(body).get("detail", "")


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await true():  # noqa: ASYNC110  # it is another process that has to be asked
            await asyncio.sleep(0.01)


class Watched:
    """A worker that is probed, and that tells a service manager how it fares."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cut_off_ms: int = 60_000) -> None:
        monkeypatch.setenv("PROBED_FOLDER", str(folder))
        self.folder = folder
        self.file = folder / "jobs.db"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(folder / "notify"))
        self.manager.setblocking(False)
        self.worker = WorkerSettings(ttl_ms=LEASE_MS, beat_ms=BEAT_MS, cut_off_ms=cut_off_ms)
        self.supervisor = Supervisor(
            SupervisorSettings(
                app_ref="tests.runtime.probed_jobs:app",
                path=(str(Path.cwd()),),
                url=f"sqlite:///{self.file}?sync=normal",
                worker=self.worker,
            )
        )
        self.place = HERE

    def told(self) -> set[str]:
        """What the service manager was told since the last call."""
        lines = set[str]()
        while True:
            try:
                lines |= set(self.manager.recv(4_096).decode().splitlines())
            except BlockingIOError:
                return lines

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[int]]:
        environ = {"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "200000"}
        supervisor, service = self.supervisor, ServiceManager(environ)
        assert environ == {}, "children would inherit it"
        async with (
            probed(HERE, supervisor.health) as place,
            service.attended(supervisor.health, supervisor.stopping),
        ):
            assert place is not None
            self.place = place
            running = asyncio.create_task(supervisor.run())
            try:
                yield running
            finally:
                supervisor.stop(force=True)
                await running
                self.manager.close()

    async def healthy(self) -> bool:
        return (await ask(self.place, "/healthz"))[0] == 200

    async def ready(self) -> bool:
        return (await ask(self.place, "/readyz"))[0] == 200

    async def starts(self, task: str) -> None:
        """Put a job in, and wait until it runs."""
        async with Limpet(f"sqlite:///{self.file}?sync=normal") as app:
            await app.enqueue(task)
        await until(lambda: _true((self.folder / "runs").exists()))

    async def hears(self, line: str) -> None:
        """Wait until the service manager is told that."""
        await until(lambda: _true(line in self.told()))


async def _true(value: bool) -> bool:
    return value


async def test_a_worker_is_ready_when_it_claims_and_no_more_when_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hold").touch()
    watched = Watched(tmp_path, monkeypatch)
    async with watched.running() as running:
        assert await watched.healthy()
        assert (await ask(watched.place, "/readyz"))[0] == 503
        await watched.hears("WATCHDOG=1")
        assert not {"READY=1", "STOPPING=1"} & watched.told()
        (tmp_path / "hold").unlink()
        await watched.hears("READY=1")
        assert await watched.ready()
        await watched.starts("waits")
        watched.supervisor.stop()
        assert await ask(watched.place, "/readyz") == (503, "the worker is ending")
        assert await watched.healthy()
        await watched.hears("STOPPING=1")
        (tmp_path / "go").touch()
        assert await running == STOPPED


async def test_a_worker_whose_loop_is_blocked_lives_no_more_until_it_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch)
    async with watched.running():
        await until(watched.ready)
        await watched.starts("blocks")
        await until(lambda: _not(watched.healthy()))
        assert "a handler blocks it" in (await ask(watched.place, "/healthz"))[1]
        assert not await watched.ready()
        watched.told()
        said = set[str]()
        while not any(line.startswith("STATUS=no event loop") for line in said):
            said |= watched.told()
            await asyncio.sleep(0.01)
        assert "WATCHDOG=1" not in said, "systemd would keep a worker that does not work"
        (tmp_path / "go").touch()
        await until(watched.ready)
        await watched.hears("WATCHDOG=1")


async def _not(answer: Awaitable[bool]) -> bool:
    return not await answer


async def test_a_worker_that_cannot_reach_its_store_is_unready_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, cut_off_ms=12_000)
    async with watched.running() as running:
        await until(watched.ready)
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LOCK, str(watched.file), stdin=PIPE, stdout=PIPE
        )
        assert stranger.stdout is not None
        assert await stranger.stdout.readline() == b"locked\n"

        async def says_so() -> bool:
            assert not running.done(), "it ended, and was ready until then"
            return "has not reached the store for" in (await ask(watched.place, "/readyz"))[1]

        await until(says_so)
        assert await watched.healthy(), "a store that is away is no reason to start it again"
        assert await running == CUT_OFF
        stranger.kill()
        await stranger.wait()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET /readyz?verbose HTTP/1.0", 503),
        ("HEAD /readyz HTTP/1.1", 503),
        ("POST /readyz HTTP/1.1", 405),
        ("GET / HTTP/1.1", 404),
        ("GET /metrics HTTP/1.1", 404),
        ("nonsense", 404),
    ],
)
def test_only_two_questions_are_answered(request_line: str, status: int) -> None:
    head, _, body = answer(f"{request_line}\r\n\r\n".encode(), Health(unready="it loads")).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert bool(body) is not request_line.startswith("HEAD")


async def test_clients_that_say_nothing_or_too_much_hold_up_no_probe() -> None:
    async with probed(HERE, Health) as place:
        assert place is not None
        silent = [await asyncio.open_connection(place.host, place.port) for _ in range(16)]
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(b"x" * 3 * HEAD_BYTES)
        assert await ask(place, "/healthz") == (200, "")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, open_writer in [*silent, (reader, writer)]:
            open_writer.close()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8080", Place("127.0.0.1", 8080)),
        (8080, Place("127.0.0.1", 8080)),
        ("0.0.0.0:80", Place("0.0.0.0", 80)),
        ("[::]:80", Place("::", 80)),
        ("a.b-c:1", Place("a.b-c", 1)),
        ("70000", None),
        (":80", None),
        ("::1:80", None),
        ("host", None),
        ("", None),
    ],
)
def test_a_place_is_a_port_with_or_without_an_address(text: str | int, place: Place | None) -> None:
    if place is None:
        with pytest.raises(InvalidOption, match="not a port"):
            place_of(text, what="probe_port")
    else:
        assert place_of(text, what="probe_port") == place
        assert place_of(str(place), what="probe_port") == place


async def test_a_port_that_is_taken_is_named_with_the_flag_that_changes_it() -> None:
    async with probed(HERE, Health) as place:
        assert place is not None
        with pytest.raises(UsageError, match=f"cannot listen on {place}") as refused:
            ProbeServer(place, Health)
        assert "--probe-port" in refused.value.fix


def test_nothing_is_sent_where_no_service_manager_listens(tmp_path: Path) -> None:
    ServiceManager({}).tell("READY=1")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nowhere")}).tell("READY=1")
    assert ServiceManager({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watchdog_s == 0
    assert ServiceManager({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_s == 1
