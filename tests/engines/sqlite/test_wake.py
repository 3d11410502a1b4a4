"""Wake-ups between processes that share a file: who is dead is asked of its socket, and found under any path."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.wake import WakeupReceiver

SOON_S = 60
NO_PID = "7ffffffe"  # larger than any kernel gives out

# In a container of its own: no pid of this process is known there, and the volume lies under another path.
CONTAINER = """
set -e
mount --bind "$1" "$2"
mount -t tmpfs none "$1"
exec "$3" -c "$4" "$2/jobs.db"
"""
NEIGHBOUR = """
import asyncio, sys
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, Serves
from limpet.stores.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path, sync="normal")
    await store.beat(Beat("neighbour", 15_000, Serves(tasks=("other",))))
    await store.enqueue([Job(bytes(16), Lane("default", "work"), Policy(), b"{}")])
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


def bound(folder: Path, name: str) -> socket.socket:
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(folder / name))
    return inbox


def test_a_socket_that_someone_listens_at_stays_whatever_its_pid_and_one_of_the_dead_goes(tmp_path: Path) -> None:
    folder = tmp_path / "jobs.db-wake"
    folder.mkdir()
    elsewhere = bound(folder, f"{NO_PID}-00")
    bound(folder, f"{os.getpid():x}-00").close()
    receiver = WakeupReceiver(str(tmp_path / "jobs.db"))
    mine = receiver.address
    assert sorted(os.listdir(folder)) == sorted([f"{NO_PID}-00", mine])
    assert receiver.send(f"{NO_PID}-00", b"w", b"s") == "sent"
    assert elsewhere.recv(10) == b"ws"
    elsewhere.close()
    receiver.close()


def test_an_ear_whose_name_was_removed_gets_a_new_one(tmp_path: Path) -> None:
    receiver, other = WakeupReceiver(str(tmp_path / "jobs.db")), WakeupReceiver(str(tmp_path / "jobs.db"))
    first = receiver.address
    assert receiver.address == first
    shutil.rmtree(tmp_path / "jobs.db-wake")
    assert other.send(first, b"w", b"s") == "gone"
    assert receiver.address != first
    assert other.send(receiver.address, b"w", b"s") == "sent"
    receiver.close()
    other.close()


async def test_a_beat_while_the_whole_folder_is_away_is_an_outage(tmp_path: Path) -> None:
    folder, aside = tmp_path / "here", tmp_path / "aside"
    os.mkdir(folder)
    store = SqliteStore(str(folder / "jobs.db"), sync="normal")
    await store.beat(Beat("s", 15_000, Serves()))
    os.rename(folder, aside)
    with pytest.raises(StoreUnreachable):
        await store.beat(Beat("s", 15_000, Serves()))
    os.rename(aside, folder)
    assert not (await store.beat(Beat("s", 15_000, Serves()))).fresh
    await store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="long paths go to the folder for temporary files here")
async def test_sockets_lie_beside_the_file_however_long_its_path_is(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    one, other = WakeupReceiver(str(folder / "jobs.db")), WakeupReceiver(str(folder / "jobs.db"))
    one.expect(b"s")
    assert other.send(one.address, b"w", b"s") == "sent"
    assert await one.sleep(b"s", SOON_S) == {b"w"}
    assert os.listdir(folder / "jobs.db-wake") == [one.address]
    one.close()
    other.close()


def in_a_container(words: list[str]) -> subprocess.CompletedProcess[str]:
    words = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--propagation", "private", *words]
    return subprocess.run(words, capture_output=True, text=True, timeout=SOON_S, check=False)


@pytest.mark.skipif(
    shutil.which("unshare") is None or in_a_container(["true"]).returncode != 0,
    reason="this machine lets nobody make a PID namespace",
)
async def test_a_neighbour_in_another_container_leaves_the_sockets_and_wakes_who_sleeps() -> None:
    with tempfile.TemporaryDirectory(prefix="lp-") as folder:  # short, as the paths of volumes are
        await _share(os.path.join(folder, "volume"), os.path.join(folder, "mounted"))


async def _share(volume: str, mounted: str) -> None:
    os.mkdir(volume)
    os.mkdir(mounted)
    store = SqliteStore(f"{volume}/jobs.db", sync="normal")
    await store.beat(Beat("s", 15_000, Serves()))
    assert not (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    sleeping = asyncio.create_task(store.wait("s", 2 * SOON_S * 1_000))
    words = ["sh", "-c", CONTAINER, "sh", volume, mounted, sys.executable, NEIGHBOUR]
    told = await asyncio.to_thread(in_a_container, words)
    assert told.returncode == 0, told.stderr
    assert (await asyncio.wait_for(sleeping, SOON_S)).work
    await store.close()
