"""Synchronous code gets one loop thread per app and process, and never blocks a running loop."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings

import pytest

from limpet.client.bridge import Bridge
from limpet.core.errors import WrongContext


async def _loop_of() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_every_call_from_every_thread_uses_the_same_loop() -> None:
    bridge = Bridge()
    loops = [bridge.run(_loop_of())]
    threads = [threading.Thread(target=lambda: loops.append(bridge.run(_loop_of()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(loops)) == 1
    bridge.close()


async def test_inside_a_running_loop_it_refuses_and_says_what_to_write() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WrongContext) as caught:
            Bridge().run(_loop_of(), instead="await .enqueue()")
        gc.collect()
    assert caught.value.fix == "await .enqueue()"


async def test_a_thread_of_a_worker_uses_the_workers_loop() -> None:
    here = asyncio.get_running_loop()
    bridge = Bridge(worker_loop=lambda: here)
    assert await asyncio.to_thread(bridge.run, _loop_of()) is here


def test_errors_come_through() -> None:
    async def fail() -> None:
        raise LookupError("here")

    bridge = Bridge()
    with pytest.raises(LookupError, match="here"):
        bridge.run(fail())
    bridge.close()


def test_close_stops_the_thread_and_the_next_run_starts_another() -> None:
    bridge = Bridge()
    first = bridge.run(_loop_of())
    bridge.close()
    assert first.is_closed()
    second = bridge.run(_loop_of())
    assert second is not first
    bridge.close()
    bridge.close()


def test_close_from_inside_answers_first_and_stops_then() -> None:
    bridge = Bridge()

    async def close() -> str:
        bridge.close()
        return "closed"

    loop = bridge.run(_loop_of())
    assert bridge.run(close()) == "closed"
    assert loop.is_closed()


def test_a_forgotten_bridge_stops_its_thread() -> None:
    bridge = Bridge()
    loop = bridge.run(_loop_of())
    del bridge
    gc.collect()
    assert loop.is_closed()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    bridge = Bridge()
    bridge.run(_loop_of())
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"bad"
        try:
            answer = str(bridge.run(asyncio.sleep(0, os.getpid()))).encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == str(pid).encode()
    os.close(read)
    os.close(write)
    bridge.close()
