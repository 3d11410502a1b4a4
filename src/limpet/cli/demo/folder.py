"""Remembers how far the demo is, so that a killed one can be finished: the lock, the plan and the journal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from limpet.cli.demo.plan import Plan
from limpet.core.errors import UsageError

LOCK: Final = "driver.lock"
LOCK_PATIENCE_S: Final = 3.0  # workers of a killed driver touch the lock for an instant when they notice
NAMESPACE: Final = "demo"


class Folder:
    """`.demo/`: the store, the ledger of effects, the plan, the journal and the workers' logs."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.ledger = self.path / "effects.db"
        self.provider = self.path / "provider.url"
        self.config = self.path / "limpet.toml"
        self.lock = self.path / LOCK
        self._plan = self.path / "plan.json"
        self._journal = self.path / "journal.jsonl"
        self.url = f"sqlite:///{quote(str(self.path / 'jobs.db'))}"

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Be the only driver here. The lock ends with the process, however that ends; workers watch it."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            deadline_s = time.monotonic() + LOCK_PATIENCE_S
            while not _taken(descriptor):
                if time.monotonic() > deadline_s:
                    raise UsageError(f"another demo is running in {self.path}", fix="wait until it has ended")
                await asyncio.sleep(0.05)
            yield
        finally:
            os.close(descriptor)

    def plan(self) -> Plan | None:
        """The plan of the demo that was begun here."""
        try:
            return msgspec.json.decode(self._plan.read_bytes(), type=Plan)
        except FileNotFoundError:
            return None

    def begin(self, plan: Plan) -> None:
        """Forget the last demo and write the new plan, before anything is done about it."""
        self._plan.unlink(missing_ok=True)  # first: half a deleted demo must not look like one to resume
        for entry in self.path.iterdir():
            if entry.name == LOCK:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        # A finished job must be there to be counted, even when the demo is resumed next week.
        self.config.write_text('[retention]\nsucceeded = "365d"\n')
        _write_whole(self._plan, msgspec.json.encode(plan))

    def publish_provider(self, url: str) -> None:
        """Tell the workers where the provider is: a resumed driver has it on another port."""
        _write_whole(self.provider, url.encode())

    def note(self, kind: str, **facts: Any) -> None:
        """Add a line to the journal; one write, so a kill leaves all of it or none."""
        line = msgspec.json.encode({"at_ms": time.time_ns() // 1_000_000, "kind": kind, **facts}) + b"\n"
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def notes(self, *kinds: str) -> list[dict[str, Any]]:
        """The journal's lines of these kinds (of all, when none is named), oldest first."""
        try:
            lines = self._journal.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        return [line for line in found if not kinds or line["kind"] in kinds]

    def noted(self, kind: str) -> bool:
        """True when the journal has such a line."""
        return bool(self.notes(kind))


def _write_whole(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
