"""Runs `limpet serve` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from limpet.stores.sqlite import SqliteStore


@asynccontextmanager
async def served(folder: Path, *words: str) -> AsyncIterator[tuple[Process, dict[str, Any]]]:
    """A server on a store in that folder, on any port, and what it said when it took connections."""
    store = SqliteStore(str(folder / "jobs.db"), sync="normal")
    await store.open()
    await store.close()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    command = [sys.executable, "-m", "limpet.cli", "serve", "--port", "0", "--json", *words]
    env = {**kept, "LIMPET_URL": f"sqlite:///{folder}/jobs.db?sync=normal"}
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=folder, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        yield process, msgspec.json.decode(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
