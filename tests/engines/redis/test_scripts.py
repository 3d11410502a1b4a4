"""The Lua files: each says what it promises, uses what is there, and runs on the oldest server that we support."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from limpet.stores.redis.fields import LAYOUTS, VALUES
from limpet.stores.redis.keys import KEYS
from limpet.stores.redis.scripts import names, script, source, uses
from tests.arch.tree import PACKAGE
from tests.servers.flavours import REDIS
from tests.servers.redis import shared

LUA: Final = PACKAGE / "stores" / "redis" / "lua"
LIBRARIES: Final = sorted(path.stem for path in (LUA / "lib").glob("*.lua"))

# Commands that the scripts may call: all are in Redis 6.2, and none reads a collection or the keyspace as a whole.
# What takes a count or a range is bounded where it is called.
CHEAP: Final = frozenset(
    word
    for line in (
        "DEL EXISTS EXPIRE PEXPIRE PERSIST UNLINK TIME",
        "GET SET SETNX INCR INCRBY APPEND GETRANGE SETRANGE STRLEN MGET MSET",
        "HDEL HEXISTS HGET HINCRBY HLEN HMGET HMSET HSET HSETNX HSTRLEN",
        "LINDEX LLEN LMOVE LPOP LPOS LPUSH LRANGE LREM LTRIM RPOP RPUSH",
        "SADD SCARD SISMEMBER SMISMEMBER SPOP SREM SRANDMEMBER",
        "ZADD ZCARD ZCOUNT ZINCRBY ZLEXCOUNT ZMSCORE ZPOPMIN ZPOPMAX ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREM",
        "ZRANDMEMBER ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZSCORE ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX",
        "XADD XDEL XLEN XRANGE XREVRANGE XTRIM",
    )
    for word in line.split()
)
# A whole set or hash at once: only where the file says what bounds it.
WHOLE: Final = ("SMEMBERS", "HGETALL", "HKEYS", "HVALS")
# A few of a collection at a time, from where the last call stopped, or until there are enough.
SWEEPS: Final = {
    "prune.lua": {"SSCAN", "HSCAN"},
    "gates_accounts.lua": {"HSCAN"},
    "lib/repair.lua": {"HSCAN"},
    "lib/repair_lists.lua": {"HSCAN", "ZSCAN"},
}
NEVER: Final = ("KEYS", "SCAN", "SORT", "FLUSHDB", "FLUSHALL", "RANDOMKEY", "EVAL", "WAIT")
CALL: Final = re.compile(r"""\b(?:redis\.p?call|p?call|try)\s*\(\s*(?:"([A-Za-z]+)"|'([A-Za-z]+)'|(\w+))""")
FAST: Final = re.compile(r"^-- Fast path: (\w+)$", re.MULTILINE)
COMMENT: Final = re.compile(r"--(?!\[\[).*$", re.MULTILINE)


def commands(text: str) -> set[str]:
    """The names of the commands that a file calls by name."""
    found = CALL.findall(COMMENT.sub("", text))
    return {(double or single).upper() for double, single, _ in found if double or single}


def files() -> list[str]:
    return [f"{name}.lua" for name in names()] + [f"lib/{name}.lua" for name in LIBRARIES]


def test_the_loader_sees_every_file() -> None:
    assert [f"{name}.lua" for name in names()] == sorted(path.name for path in LUA.glob("*.lua"))
    assert names(), "there are scripts"


def test_a_script_uses_libraries_that_exist_each_once() -> None:
    used = {name: uses(source(f"{name}.lua")) for name in names()}
    assert [(name, library) for name in used for library in used[name] if library not in LIBRARIES] == []
    assert [name for name, libraries in used.items() if len(set(libraries)) < len(libraries)] == []


def test_no_library_lies_unused() -> None:
    used = {library for name in names() for library in uses(source(f"{name}.lua"))}
    used |= {library for name in names() for library in FAST.findall(source(f"{name}.lua"))}
    assert sorted(set(LIBRARIES) - used) == []


def test_only_commands_of_redis_6_2_that_scan_nothing() -> None:
    called = {path: commands(source(path)) for path in files()}
    assert {path: found & set(NEVER) for path, found in called.items() if found & set(NEVER)} == {}
    allowed = {path: CHEAP | set(WHOLE) | SWEEPS.get(path, set()) for path in called}
    assert {path: found - allowed[path] for path, found in called.items() if found - allowed[path]} == {}


def test_nothing_is_random_and_no_clock_but_the_servers_is_read() -> None:
    texts = {path: COMMENT.sub("", source(path)) for path in files()}
    assert [path for path, text in texts.items() if "math.random" in text or "os.time" in text] == []


# How code reads bytes at a place that has no name: see fields.py. A first character is no field.
UNNAMED: Final = re.compile(
    r"""P \.\. "|\bsub\([^()]*, \d+, (?!1\))\d+\)|\bbyte\([^()]*, \d|% \d+ (?:[<>]|==|~=)|struct\.\w+\("(?!>I[46]")"""
)
DECLARED: Final = re.compile(
    r"\blocal function (\w+)|\blocal (?!function)([\w, ]+)|\bfunction[ \w.:]*\(([^)]*)\)|\bfor ([\w, ]+?) (?:in|=)"
)


def written(path: str) -> str:
    """The code of a file as people wrote it, without comments."""
    return COMMENT.sub("", (LUA / path).read_text())


def test_keys_fields_and_flags_are_called_by_their_names() -> None:
    arithmetic = {"lib/gates_math.lua", "lib/gates_period.lua"}
    found = [(path, each) for path in files() if path not in arithmetic for each in UNNAMED.findall(written(path))]
    assert found == []


def test_nothing_hides_a_module_or_a_name_that_is_put_in() -> None:
    taken = {*LIBRARIES, *VALUES, *LAYOUTS, "K", "HAS"}
    hidden = [
        (path, name)
        for path in files()
        if path != "lib/base.lua"
        for found in DECLARED.findall(written(path))
        for name in re.findall(r"\w+", " ".join(found))
        if name in taken
    ]
    assert hidden == []


def test_the_header_of_a_script_names_keys_that_exist() -> None:
    for name in names():
        said = re.search(r"^-- Keys: (.*)$", source(f"{name}.lua"), re.MULTILINE)
        assert said is not None, name
        keys = re.sub(r" ?\(.*?\)|,? and those of its modules|\.$", "", said[1]).split(", ")
        assert [key for key in keys if key not in KEYS] == [], name


def test_every_script_loads_under_the_name_that_we_compute() -> None:
    server = shared(REDIS)
    for name in names():
        loaded = script(name)
        assert server.ask("SCRIPT", "LOAD", loaded.text).decode() == loaded.sha, name
        assert loaded.sha == hashlib.sha1(loaded.text.encode()).hexdigest()


def test_a_script_has_its_libraries_in_front_in_the_order_it_names_and_without_their_headers() -> None:
    for name in names():
        text, place = script(name).text, 0
        for library in uses(source(f"{name}.lua")):
            header = re.match(r"(--.*\n)*", source(f"lib/{library}.lua"))
            assert header is not None
            body = source(f"lib/{library}.lua")[header.end() :]
            assert text.count(body) == 1
            assert text.index(body) >= place
            place = text.index(body)
        assert text.index(source(f"{name}.lua")) >= place
    assert script(names()[0]) is script(names()[0]), "read once"
