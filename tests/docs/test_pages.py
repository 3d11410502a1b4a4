"""The README, the tutorial and the how-to pages do what they say: every block is run, in order, by a reader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.tree import ROOT, named
from tests.docs.pages import Reader, blocks_of, says
from tests.servers import flavours, installations
from tests.servers.postgres import PostgresServer, fresh_database, own
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, running

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

BIN = Path(sys.executable).parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]
RUN = {"python", "sh"}
# A block that is neither run nor one of these would be an example that nobody checks.
FOR_THE_EYE = {"text", "ini", "toml", "mermaid", "json"}
ELSEWHERE = {
    "redis.md": {"bash", "py"},  # run on two machines by tests/engines/redis/test_two_machines.py
    "http-api.md": {"py"},  # run as examples/mounted.py by tests/examples/test_examples.py
    "postgres.md": {"sql"},  # run by tests/engines/postgres/test_privileges.py
}
# What pages call the reader's own servers.
REDIS = "redis://queue.example:6379"
POSTGRES = "postgresql://shop@queue.example:5432/shop"
PORT = "8787"  # of `limpet serve`


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(RedisServer(flavours.REDIS, tmp_path_factory.mktemp("redis"), aof="everysec")) as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with own(installations.POSTGRES) as server:
        yield server


@pytest.fixture
def servers(redis: RedisServer, postgres: PostgresServer) -> dict[str, str]:
    """Servers such as the pages on Redis and PostgreSQL ask for; each reader has a database of their own."""
    return {REDIS: redis.url, POSTGRES: fresh_database(postgres), PORT: str(free_port())}


@pytest.mark.timeout(600)  # up to 10 s on a machine that has nothing else to do
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_of_a_page_works(page: Path, tmp_path: Path, servers: dict[str, str]) -> None:
    runnable = [block for block in blocks_of(page) if block.language in RUN]
    ran = Reader(tmp_path, BIN, servers).read(page)
    assert ran >= len(runnable)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_has_no_block_that_looks_runnable_and_is_not(page: Path) -> None:
    elsewhere = ELSEWHERE.get(page.name, set())
    assert {block.language for block in blocks_of(page)} - RUN - FOR_THE_EYE == elsewhere
    assert page.read_text().count("\n```") == 2 * len(blocks_of(page)), "a fence without a language"


def test_an_output_that_differs_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text output\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:5 promises\n3\n\nbut it was\n2"):
        Reader(tmp_path, BIN).read(page)


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse | cat\n```\n")
    with pytest.raises(AssertionError, match="ended with 1"):
        Reader(tmp_path, BIN).read(page)


def test_dots_stand_for_anything() -> None:
    assert says("job ... is ready", "job 01a1 is ready\n")
    assert says("a\n...\nb", "a\nx\ny\nb")
    assert not says("job ... is ready", "job 01a1 is dead")
