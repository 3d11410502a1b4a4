"""An app on each engine, on ground of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from limpet import Limpet
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared as shared_postgres
from tests.servers.redis import shared as shared_redis

ENGINES = ("sqlite", "redis", "postgres")
_NAMESPACES = count(1)


def app_on(engine: str, folder: Path, options: str = "") -> Limpet:
    """An app of its own on this engine; `options` go with the URL of a server."""
    namespace = f"flows{next(_NAMESPACES)}"
    if engine == "sqlite":
        return Limpet(f"sqlite:///{folder}/jobs.db?sync=normal", namespace=namespace, enqueue_timeout=60)
    server = shared_redis(REDIS) if engine == "redis" else shared_postgres(POSTGRES)
    return Limpet(f"{server.url}{options}", namespace=namespace, enqueue_timeout=60)


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Limpet]:
    """A fresh app on each engine; it is asked from code without an event loop."""
    app = app_on(request.param, tmp_path, "?timeout=60")  # some enqueue thousands of jobs in one call
    yield app
    app.run(app.close())
