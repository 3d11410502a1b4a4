"""Runs commands in this process against a store in a real file, and keeps what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from limpet.cli import main
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore

T = TypeVar("T")


@dataclass(frozen=True)
class Ran:
    """What one command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        return msgspec.json.decode(self.out)


class Cli:
    """Commands on one store; `seed` prepares it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *args: str, code: int | None = 0) -> Ran:
        """Run a command; a code of None accepts any."""
        self._capsys.readouterr()
        answered = main(list(args))
        out, err = self._capsys.readouterr()
        assert code is None or answered == code, f"exit {answered}\n{out}\n{err}"
        return Ran(answered, out, err)

    def seed(self, make: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Do something to the store from outside the commands."""

        async def whole() -> T:
            store = SqliteStore(str(self.path), sync="normal")
            try:
                return await make(store)
            finally:
                await store.close()

        return asyncio.run(whole())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in ("URL", "NAMESPACE", "APP", "CONFIG", "LOG"):
        monkeypatch.delenv(f"LIMPET_{name}", raising=False)
    path = tmp_path / "jobs.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIMPET_URL", f"sqlite:///{path}?sync=normal")
    return Cli(path, capsys)
