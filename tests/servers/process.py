"""What every private server needs: a port, a folder, a user who may run it, and an end that comes with its parent's."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import shutil
import socket
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, NamedTuple, TypedDict

# Below the ports that a kernel gives to outgoing connections, or one of those could sit on the port of a
# server that is down; and a cluster's bus, at port + 10,000, still fits below them.
PORTS: Final = range(12_000, 22_000)
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30  # a container may have 64 MB of it, which the data of one PostgreSQL would fill


class Unreachable(Exception):
    """The server refuses connections, or does not answer in time."""


def free_port() -> int:
    """A port on which nobody listens now."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Unreachable(f"a hundred ports of {PORTS} are taken")


def fresh_folder(prefix: str) -> Path:
    """A fresh folder, in memory where there is some: a kill of a process shows there what it shows on a disk, and no
    other program's flushes stand in the way. It goes when this process ends."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    folder = Path(mkdtemp(prefix=prefix, dir=MEMORY if roomy else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def tied_to_parent(signal: str = "KILL") -> list[str]:
    """On Linux: the words before a command that make the kernel end it with the thread that started it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal, "--"] if setpriv else []


class Credentials(TypedDict, total=False):
    """The part of Popen's options that says who runs a program."""

    user: int
    group: int
    extra_groups: list[int]


class Servant(NamedTuple):
    """Who runs the programs that refuse root: another user where we are root, and we ourselves elsewhere."""

    uid: int
    gid: int

    def credentials(self) -> Credentials:
        if os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, folder: Path) -> Path:
        """Make a folder the servant's own."""
        os.chown(folder, self.uid, self.gid)
        return folder


@cache
def servant() -> Servant:
    if os.geteuid():
        return Servant(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Servant(found.pw_uid, found.pw_gid)
    raise Unreachable("PostgreSQL refuses root, and there is neither a user `postgres` nor a user `nobody` to run it")
