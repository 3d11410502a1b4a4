"""Lays out where one run takes place: a fresh folder on disk and a fresh store, both gone at the end.

The address of the store is a template: `{n}` stands for the number of a store, since some measures compare two.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from bench.meter import SERVER, ask, info
from bench.server import RedisServer
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import PostgresServer, running

SCRATCH: Final = Path(__file__).resolve().parent.parent / ".bench"
STORES: Final = 2  # as many as a measure compares

Ground = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run, on the disk that the checkout is on: what is in memory only flatters."""
    SCRATCH.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def sqlite(query: str = "") -> Ground:
    """Files in the folder."""

    @contextmanager
    def ground(folder: Path) -> Iterator[str]:
        yield f"sqlite:///{folder}/jobs{{n}}.db{query}"

    return ground


def redis(fsync: str) -> Ground:
    """A server of this run's own."""

    @contextmanager
    def ground(folder: Path) -> Iterator[str]:
        with RedisServer(folder, fsync) as server:
            yield f"{server.url}/{{n}}"

    return ground


def postgres(flavour: PostgresFlavour) -> Ground:
    """A server of this run's own, as it comes: it flushes every commit. What tests set otherwise is undone."""

    @contextmanager
    def ground(folder: Path) -> Iterator[str]:
        folder.chmod(0o711)  # the server may be run by another user: it refuses root
        with running(PostgresServer(flavour, folder / "postgres", settings=_AS_IT_COMES)) as server:
            (folder / SERVER).write_text(str(server.pid))
            for number in range(STORES):
                server.ask(f"CREATE DATABASE bench{number}")
            yield server.url_of("bench{n}")

    return ground


_AS_IT_COMES: Final = {"shared_buffers": "128MB", "max_connections": "100"}


def elsewhere(url: str) -> Ground:
    """A server that is already running; its first databases must be empty and are emptied again."""
    template = f"{url.rstrip('/')}/{{n}}"
    names = {f"db{number}" for number in range(STORES)}

    @contextmanager
    def ground(folder: Path) -> Iterator[str]:
        if names & info(template.format(n=0), "keyspace").keys():
            raise SystemExit(f"bench: databases 0 to {STORES - 1} of {url} hold data; the bench wants them empty")
        try:
            yield template
        finally:
            for number in range(STORES):
                ask(template.format(n=number), "FLUSHDB")

    return ground
