"""A field per test and engine, with a seed of its own; LIMPET_SEED chooses others."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import pytest

from limpet_contract.seeds import seed_of
from tests.chaos.field import Field
from tests.servers import postgres
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.redis import RedisServer, own
from tests.size import in_matrix

MEMORY = Path("/dev/shm")  # a kill leaves the machine running: what was written is there, on a disk or not
ALL = ("sqlite", "redis", "postgres")
# What happens between workers and a store is for all engines, every day.
on_every_engine = pytest.mark.parametrize("url", ALL, indirect=True)


def on(*daily: str, why: str) -> pytest.MarkDecorator:
    """Every engine in the matrix, these ones every day, and why they are enough."""
    rest = [engine for engine in ALL if engine not in daily]
    return pytest.mark.parametrize("url", [*daily, *in_matrix(why, *rest)], indirect=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one."""
    with TemporaryDirectory(prefix="limpet-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis as people run it, on disk and flushed every second."""
    with own(REDIS, aof="everysec") as server:
        yield server


@pytest.fixture
def database() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL with the settings that it comes with."""
    with postgres.own(POSTGRES) as server:
        yield server


@pytest.fixture(params=["sqlite", *in_matrix("it happens in workers alone, whatever the engine", "redis")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the jobs of the field are kept."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chaos.db?sync=normal"
    found: RedisServer | postgres.PostgresServer
    found = request.getfixturevalue("database" if request.param == "postgres" else "server")
    return found.url


@pytest.fixture
async def field(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Field]:
    field = Field(url, tmp_path, seed_of(crc32(request.node.nodeid.encode())))
    await field.season()
    yield field
    await field.close()
