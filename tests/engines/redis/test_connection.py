"""One connection: answers in order, deadlines, and what callers hear when it ends."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from limpet.stores.redis.client import Client
from limpet.stores.redis.connection import Connection, Login, Refusal, Word, open_connection
from limpet.stores.redis.url import Where, parse_redis
from limpet.stores.server.client import PerLoop
from limpet.stores.server.trouble import Lost, Silent
from tests.servers.door import door
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, running, shared

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 30.0  # more than anything takes on a busy machine


def at(server: RedisServer) -> Where:
    return Where("127.0.0.1", server.port)


def soon(after_s: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + after_s


@pytest.fixture
async def line() -> AsyncIterator[Connection]:
    line = await open_connection(at(shared(REDIS)), Login(), PATIENCE_S)
    yield line
    line.close()


async def test_answers_are_bytes_whatever_they_hold_and_errors_are_answers(line: Connection) -> None:
    odd = bytes(range(256)) + b"\r\n$3\r\n"
    assert await line.send(("SET", "line:a", odd), soon()) == b"OK"
    assert await line.send(("GET", b"line:a"), soon()) == odd
    assert await line.send(("GET", "line:none"), soon()) is None
    assert await line.send(("STRLEN", "line:a"), soon()) == len(odd)
    refusal = await line.send(("LPUSH", "line:a", 1), soon())
    assert isinstance(refusal, Refusal)
    assert refusal.code == "WRONGTYPE"
    assert await line.send(("EVAL", "return {1, {'a', false}, ''}", 0), soon()) == [1, [b"a", None], b""]


async def test_many_calls_share_the_line_and_each_gets_its_own_answer(line: Connection) -> None:
    words: list[tuple[Word, ...]] = [("ECHO", f"{number}" * (number % 50 + 1)) for number in range(2_000)]
    answers = await asyncio.gather(*(line.send(word, soon()) for word in words))
    assert answers == [str(word[1]).encode() for word in words]


async def test_what_is_asked_in_one_turn_leaves_in_one_packet(line: Connection) -> None:
    first = line.send(("PING",), soon())
    rest = [line.send(("PING",), soon()) for _ in range(50)]
    assert len(line._unsent) == 50, "the first is on its way at once, the others wait for the end of this turn"
    assert await first == b"PONG"
    assert line._unsent == []
    assert await asyncio.gather(*rest) == [b"PONG"] * 50


async def test_large_values_pass_whole(line: Connection) -> None:
    large = os.urandom(8 * 1024 * 1024)
    small = line.send(("ECHO", "before"), soon())
    assert await line.send(("ECHO", large), soon()) == large
    assert await small == b"before"


async def test_a_caller_that_gives_up_takes_nobody_elses_answer(line: Connection) -> None:
    for _ in range(20):
        futures = [line.send(("ECHO", str(number)), soon()) for number in range(10)]
        futures[3].cancel()
        futures[7].cancel()
        kept = [future for future in futures if not future.cancelled()]
        assert await asyncio.gather(*kept) == [b"0", b"1", b"2", b"4", b"5", b"6", b"8", b"9"]


async def test_a_silent_server_fails_the_call_at_its_deadline_and_the_line_for_all(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        line = await open_connection(at(server), Login(), PATIENCE_S)
        server.freeze()
        start = soon(0)
        patient = line.send(("GET", "a"), soon(60))
        hasty = line.send(("GET", "b"), soon(0.2))
        with pytest.raises(Silent):
            await hasty
        with pytest.raises(Lost) as caught:
            await patient
        assert caught.value.sent
        assert 0.2 <= soon(0) - start < PATIENCE_S
        assert line.closed
        with pytest.raises(Lost) as caught:
            await line.send(("GET", "a"), soon())
        assert not caught.value.sent
        server.thaw()


async def test_a_late_deadline_is_kept_although_an_earlier_one_was_met(line: Connection) -> None:
    """One timer serves all calls: after it rings for a call that was answered, the next one must still be watched."""
    early = soon(0.8)
    assert await line.send(("PING",), early) == b"PONG"
    slow = line.send(("BLPOP", "line:nothing", "30"), early + 0.1)
    with pytest.raises(Silent):
        await slow


def test_a_loop_that_stood_still_takes_its_answer_and_blames_nobody() -> None:
    async def stall() -> object:
        line = await open_connection(at(shared(REDIS)), Login(), PATIENCE_S)
        assert line._transport is not None
        socket = line._transport.get_extra_info("socket")
        answer = line.send(("PING",), soon(0.1))
        # A handler that blocks the loop past the deadline, and until the answer is there.
        time.sleep(0.15)  # noqa: ASYNC251
        assert select.select([socket.fileno()], [], [], PATIENCE_S)[0]
        try:
            return await answer
        finally:
            line.close()

    assert asyncio.run(stall()) == b"PONG"
    assert uvloop.run(stall()) == b"PONG"


async def test_a_lost_connection_says_what_had_been_sent(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        line = await open_connection(at(server), Login(), PATIENCE_S)
        server.freeze()
        first = line.send(("GET", "a"), soon())
        await asyncio.sleep(0)
        second, third = (line.send(("GET", "a"), soon()) for _ in range(2))
        line.drop("as if the network had gone")
        sent = []
        for future in (first, second, third):
            with pytest.raises(Lost) as caught:
                await future
            sent.append(caught.value.sent)
        assert sent == [True, False, False]


async def test_a_killed_server_is_heard_of_at_once(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        line = await open_connection(at(server), Login(), PATIENCE_S)
        waiting = line.send(("BLPOP", "nothing", 0), math.inf)
        await asyncio.sleep(0)
        server.kill()
        with pytest.raises(Lost) as caught:
            await asyncio.wait_for(waiting, PATIENCE_S)
        assert caught.value.sent
        with pytest.raises(OSError, match="Connect call failed"):
            await open_connection(at(server), Login(), PATIENCE_S)


async def test_a_line_that_retires_answers_first(line: Connection) -> None:
    answer = line.send(("PING",), soon())
    line.retire()
    assert await answer == b"PONG"
    assert line.closed


async def test_a_server_that_accepts_and_says_nothing_is_given_up(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        server.freeze()
        with pytest.raises(TimeoutError):
            await open_connection(at(server), Login(), 0.2)
        server.thaw()


async def test_what_is_no_redis_is_named() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with door(talk) as port:
        with pytest.raises(Lost, match="does not speak Redis's protocol"):
            await open_connection(Where("127.0.0.1", port), Login(), PATIENCE_S)


@asynccontextmanager
async def stranger(*answers: bytes) -> AsyncIterator[Where]:
    """A server that says one thing at once and the next after each packet, and then waits until we hang up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            writer.write(answer)
            await reader.read(100)

    async with door(talk) as port:
        yield Where("127.0.0.1", port)


async def test_a_refusal_before_anything_was_asked_is_the_answer_to_what_is_asked() -> None:
    async with stranger(b"-ERR max number of clients reached\r\n") as where:
        loop = asyncio.get_running_loop()
        line = Connection(where, loop)
        await loop.create_connection(lambda: line, where.host, where.port)
        for _ in range(500):
            await asyncio.sleep(0 if line.closed else 0.01)
        answer = await line.send(("PING",), soon())
    assert isinstance(answer, Refusal)
    assert answer.code == "MAXCLIENTS"


@pytest.mark.parametrize(
    ("answer", "opens"),
    [
        ("NOPERM this user has no permissions to run the 'client|setname' command", True),
        ("ERR unknown command 'CLIENT'", True),
        ("NOAUTH Authentication required.", False),
        ("ERR max number of clients reached", False),
        ("DENIED Redis is running in protected mode", False),
    ],
)
async def test_who_may_not_have_a_name_works_without_and_who_is_refused_hears_it(answer: str, opens: bool) -> None:
    async with stranger(b"", f"-{answer}\r\n".encode()) as where:
        if opens:
            (await open_connection(where, Login(), PATIENCE_S)).close()
        else:
            with pytest.raises(Refusal) as caught:
                await open_connection(where, Login(), PATIENCE_S)
            assert caught.value.text == answer


async def test_login_database_and_name_are_told_first(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        where = at(server)
        server.ask("ACL", "SETUSER", "ada", "on", ">pw", "~*", "+@all")
        server.ask("CONFIG", "SET", "requirepass", "s3cret")
        line = await open_connection(where, Login(password="s3cret", db=5), PATIENCE_S)
        await line.send(("SET", "here", 1), soon())
        told = await line.send(("CLIENT", "LIST"), soon())
        assert b"name=limpet" in told
        assert b"db=5" in told
        line.close()
        line = await open_connection(where, Login("ada", "pw"), PATIENCE_S)
        assert await line.send(("GET", "here"), soon()) is None
        assert await line.send(("ACL", "WHOAMI"), soon()) == b"ada"
        line.close()
        for login in (Login(password="wrong"), Login("bob", "pw")):
            with pytest.raises(Refusal, match="WRONGPASS"):
                await open_connection(where, login, PATIENCE_S)
        with pytest.raises(Refusal, match="DB index"):
            await open_connection(where, Login(password="s3cret", db=99), PATIENCE_S)


async def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    path = f"/tmp/limpet-{os.getpid()}-{os.urandom(3).hex()}.sock"  # pytest's folders are too long for one
    with running(RedisServer(REDIS, tmp_path, args=["--unixsocket", path])):
        line = await open_connection(Where("", 0, path), Login(), PATIENCE_S)
        assert await line.send(("PING",), soon()) == b"PONG"
        line.close()


def test_a_loop_that_ends_leaves_nothing_open() -> None:
    """As every asyncio.run does; warnings are errors here, so an unclosed socket would fail this test."""
    url = shared(REDIS).url
    clients = PerLoop(lambda: Client(parse_redis(url), "limpet:x"))

    async def ping() -> object:
        return await clients.here().call("ping", "PING")

    before = open_files()
    for _ in range(5):
        assert asyncio.run(ping()) == b"PONG"
        gc.collect()
    assert open_files() == before


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_each_loop_and_each_close_gets_a_connection_of_its_own() -> None:
    clients = PerLoop(lambda: Client(parse_redis(shared(REDIS).url), "limpet:x"))

    async def number() -> object:
        return await clients.here().call("id", "CLIENT", "ID")

    here = await number()
    assert await number() == here
    assert await asyncio.to_thread(lambda: asyncio.run(number())) != here
    await clients.close()
    assert await number() != here
    await clients.close()
    await clients.close()


FORK = """
import asyncio, os, sys
from limpet.stores.server.client import PerLoop
from limpet.stores.redis.client import Client
from limpet.stores.redis.url import parse_redis

routes = PerLoop(lambda: Client(parse_redis(sys.argv[1]), "limpet:x"))

async def number():
    return await routes.here().call("id", "CLIENT", "ID")

def child(loop):
    if sys.argv[2] == "same":
        return loop.run_until_complete(number())
    return asyncio.run(number())

loop = asyncio.new_event_loop()
mine = loop.run_until_complete(number())
pid = os.fork()
if pid == 0:
    os._exit(child(loop) == mine)
_, status = os.waitpid(pid, 0)
assert status == 0, "the child used its parent's connection"
assert loop.run_until_complete(number()) == mine, "the parent lost its connection"
loop.run_until_complete(routes.close())
loop.close()
"""


@pytest.mark.parametrize("loop", ["same", "new"])
def test_a_fork_connects_anew_and_leaves_its_parent_alone(loop: str) -> None:
    command = [sys.executable, "-W", "error", "-c", FORK, shared(REDIS).url, loop]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")
