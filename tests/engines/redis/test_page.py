"""The page for operators stays true: it names every option and finding, and what it tells to type works."""

from __future__ import annotations

import re
from pathlib import Path

from limpet.stores.open import open_store
from limpet.stores.redis import check, url
from limpet.testing.bench import Bench
from limpet.testing.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, running

PAGE = (Path(__file__).parents[3] / "docs/how-to/redis.md").read_text()


def test_it_names_every_option_of_a_url() -> None:
    assert sorted(name for name in url._OPTIONS if f"`{name}`" not in PAGE) == []


def test_it_names_every_finding() -> None:
    assert check.__file__ is not None
    codes = set(re.findall(r'Finding\(\s*(?:"\w+"|level), "(\w+)"', Path(check.__file__).read_text()))
    assert len(codes) > 5
    assert sorted(code for code in codes if f"| `{code}` |" not in PAGE) == []


def test_it_says_the_defaults() -> None:
    assert f"| `timeout` | {url.TIMEOUT_S:g} |" in PAGE
    assert f"| `keep` | {url.KEEP} |" in PAGE
    assert f"from {check.NEARLY_FULL:.0%} on".replace("%", " %") in PAGE


async def test_its_settings_and_its_user_are_enough(tmp_path: Path) -> None:
    settings = re.findall(r"^(append\w+|maxmemory[\w-]*) (\S+)$", PAGE, re.MULTILINE)
    assert len(settings) == 4
    (user,) = re.findall(r"^(ACL SETUSER .*)$", PAGE, re.MULTILINE)
    args = [word for name, value in settings for word in (f"--{name}", value)]
    with running(RedisServer(REDIS, tmp_path / "redis", args=args)) as server:
        server.ask(*user.split())
        store = open_store(f"{server.url.replace('//', '//shop:secret@')}?strict=1")
        bench = Bench(store, Clock())
        await store.open()
        job = await bench.add()
        hand = bench.hand()
        assert await hand.drain() == [job]
        assert await hand.claim() == []
        await bench.add()
        assert (await hand.wait(5_000)).work
        await bench.check_books()
        assert {finding.level for finding in await store.check()} == {"ok"}
        await store.close()


async def test_a_snapshot_is_restored_as_it_says(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path / "old", aof="everysec")) as server:
        store = open_store(server.url)
        bench = Bench(store, Clock())
        await bench.add_many(3)
        await bench.hand().take()
        server.ask("SAVE")
        dump = (server.folder / "dump.rdb").read_bytes()
        await bench.hand("w2").drain()
        await store.close()
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "dump.rdb").write_bytes(dump)
    with running(RedisServer(REDIS, folder)) as server:
        server.ask("CONFIG", "SET", "appendonly", "yes")
        store = open_store(server.url)
        bench.store = store
        await bench.check_books()
        assert sorted(str(job.state) for job in await bench.everything()) == ["ready", "ready", "running"]
        assert len(await bench.hand("w3").drain()) == 2
        await store.close()
