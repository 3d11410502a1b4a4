"""The server as a program: where it listens, what it refuses to start with, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from limpet.stores.sqlite import SqliteStore
from tests.cli.conftest import Cli
from tests.server.asking import Wire
from tests.server.served import served
from tests.server.serving import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_says_where_it_listens_and_ends_quietly(tmp_path: Path, number: signal.Signals) -> None:
    async with served(tmp_path) as (process, banner):
        assert banner["loopback_role"] == "admin"
        async with Wire(banner["listens"]) as wire:
            await wire.ask("GET", "/api/v1/stats")
            assert (await wire.answer()).json["ready"] == 0
            process.send_signal(number)
            _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_ends_while_a_claim_waits_holds_nothing(tmp_path: Path, number: signal.Signals) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    async with served(tmp_path) as (process, banner), Wire(banner["listens"]) as wire:
        asked = b'{"worker":"w1","wait":60}'
        await wire.ask("POST", "/api/v1/claim", {"content-type": "application/json"}, asked)

        async def waits() -> bool:
            return any(session.idle for session in await store.sessions())

        await until(waits)
        process.send_signal(number)
        if number is signal.SIGTERM:
            assert (await wire.answer()).json == {"jobs": []}
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0 if number is signal.SIGTERM else -number, b"")
    left = await store.sessions()
    assert len(left) == (number is signal.SIGKILL)
    assert [(view.running, view.deadline_at_ms - view.beat_at_ms) for view in left] == [(0, 15_000)] * len(left)
    await store.close()


def test_a_server_for_others_needs_a_token_to_start(cli: Cli) -> None:
    cli("migrate")
    ran = cli("serve", "--host", "0.0.0.0", "--port", "0", code=2)
    assert "0.0.0.0 can be reached by other machines" in ran.err
    assert "limpet tokens create" in ran.err


def test_a_server_needs_a_store_that_is_there(cli: Cli) -> None:
    assert "there is no store" in cli("serve", "--port", "0", code=5).err


def test_a_port_that_is_taken_is_named(cli: Cli) -> None:
    from limpet.runtime.listening import listener_on

    cli("migrate")
    with listener_on("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in cli("serve", "--port", str(port), code=2).err


async def test_a_server_tells_its_service_manager_when_it_listens_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")

        async def hears(*lines: str) -> None:
            heard = set[str]()
            async with asyncio.timeout(60):
                while not heard.issuperset(lines):
                    heard |= {*(await asyncio.get_running_loop().sock_recv(manager, 4_096)).decode().splitlines()}

        async with served(tmp_path) as (process, _):
            await hears("READY=1", "WATCHDOG=1")
            process.send_signal(signal.SIGTERM)
            await hears("STOPPING=1")
            assert await process.wait() == 0
