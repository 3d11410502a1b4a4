"""Tells systemd how a command fares: that it works, that it ends, and again and again that it lives (sd_notify)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from limpet.runtime.background import background
from limpet.runtime.health import Health

LOOK_S: Final = 1.0  # at most; a short watchdog is fed more often
STARTS_S: Final = 30  # how much longer the start may take, said with each look: the store may be away


class ServiceManager:
    """The one that started this process, if it wants to be told; otherwise what it is told goes nowhere."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Take the address out of the environment: it is meant for this process, not for its children."""
        environ = os.environ if environ is None else environ
        self._address = environ.pop("NOTIFY_SOCKET", "")
        watchdog_us, pid = environ.pop("WATCHDOG_USEC", "0"), environ.pop("WATCHDOG_PID", "")
        fed = watchdog_us.isdigit() and pid in ("", str(os.getpid()))
        self.watchdog_s = int(watchdog_us) / 1e6 if fed else 0.0

    def tell(self, *lines: str) -> None:
        """Send what is true now; one that does not listen is no trouble of ours."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(), address)

    @asynccontextmanager
    async def attended(self, health: Callable[[], Health], stopping: asyncio.Event) -> AsyncIterator[None]:
        """Tell it how this process fares, in the block."""
        if not self._address:
            yield
            return
        attending = background(self._attend(health, stopping), "limpet-service-manager")
        try:
            yield
        finally:
            attending.cancel()
            await asyncio.wait({attending})

    async def _attend(self, health: Callable[[], Health], stopping: asyncio.Event) -> None:
        started = ending = False
        pause_s = min(LOOK_S, self.watchdog_s / 4) if self.watchdog_s else LOOK_S
        while True:
            now = health()
            lines = [f"STATUS={now.unwell or now.unready or 'ready'}"]
            if not started and not now.unready:
                started = True
                lines.append("READY=1")
            elif not started:
                lines.append(f"EXTEND_TIMEOUT_USEC={STARTS_S * 1_000_000}")
            if stopping.is_set() and not ending:
                ending = True
                lines.append("STOPPING=1")
            if self.watchdog_s and not now.unwell:
                lines.append("WATCHDOG=1")
            self.tell(*lines)
            await self._pause(pause_s, stopping, ending=ending)

    async def _pause(self, pause_s: float, stopping: asyncio.Event, *, ending: bool) -> None:
        if ending:
            await asyncio.sleep(pause_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stopping.wait()
