"""The page for operators stays true: it names every option and finding, and what it tells to type works."""

from __future__ import annotations

import re
from pathlib import Path

from limpet.stores.asking import examined
from limpet.stores.open import open_store
from limpet.stores.redis import check, url
from limpet.stores.server.url import TIMEOUT_S
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.redis.test_trouble import until
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
    assert f"| `timeout` | {TIMEOUT_S:g} |" in PAGE
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
        assert {finding.level for finding in await examined(store).check()} == {"ok"}
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


class WithFile(RedisServer):
    """A server that has a configuration file, as one of a distribution has."""

    def command(self) -> list[str]:
        config = self.folder / "redis.conf"
        if not config.exists():
            config.write_text("appendonly no\n")
        binary, *words = super().command()
        return [binary, str(config), *words]


def settled(server: RedisServer) -> bool:
    said = server.ask("INFO", "persistence")
    return b"aof_rewrite_in_progress:0\r\n" in said and b"aof_rewrite_scheduled:0\r\n" in said


async def turned_on(server: RedisServer, *last: str) -> list[bytes]:
    """A job, and the log turned on as the page says; `last` is its last step."""
    store = open_store(server.url)
    bench = Bench(store, Clock())
    job = await bench.add()
    (finding,) = (each for each in await examined(store).check() if each.code == "log")
    server.ask("CONFIG", "SET", "appendonly", "yes")
    await until(lambda: settled(server))
    if last:
        server.ask(*last)
        assert "CONFIG REWRITE" in finding.fix
    else:
        assert "start it with --appendonly yes" in finding.fix
    await store.close()
    return [job]


async def jobs_of(server: RedisServer, ids: list[bytes]) -> list[bytes]:
    store = open_store(server.url)
    found = [view.id for view in await store.get(ids) if view is not None]
    assert {each.level for each in await examined(store).check() if each.code == "log"} == {"ok"}
    await store.close()
    return found


async def test_the_append_only_file_is_turned_on_without_a_loss_with_a_configuration_file(tmp_path: Path) -> None:
    with running(WithFile(REDIS, tmp_path)) as server:
        ids = await turned_on(server, "CONFIG", "REWRITE")
        server.kill()
        server.start()
        assert await jobs_of(server, ids) == ids


async def test_the_append_only_file_is_turned_on_without_a_loss_without_a_configuration_file(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path / "data")) as server:
        ids = await turned_on(server)
        server.kill()
        server.aof = "everysec"
        server.start()
        assert await jobs_of(server, ids) == ids


async def test_a_restart_with_the_setting_and_without_the_file_begins_empty(tmp_path: Path) -> None:
    """Why the page forbids it: should a server ever read its snapshot here, the page may say less."""
    with running(RedisServer(REDIS, tmp_path / "data")) as server:
        store = open_store(server.url)
        await Bench(store, Clock()).add()
        await store.close()
        server.ask("SAVE")
        server.kill()
        server.aof = "everysec"
        server.start()
        assert server.ask("DBSIZE") == 0
