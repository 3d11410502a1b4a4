"""Knows who runs the servers that refuse to be run by root."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, TypedDict


class Credentials(TypedDict, total=False):
    """The part of Popen's options that says who runs a program."""

    user: int
    group: int
    extra_groups: list[int]


class Servant(NamedTuple):
    """Another user where we are root, and we ourselves elsewhere."""

    uid: int
    gid: int

    def credentials(self) -> Credentials:
        if os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> Path:
        """Make a file or folder the servant's own. Folders above it have to be open: those of pytest are not."""
        os.chown(path, self.uid, self.gid)
        return path

    def reaches(self, program: Path) -> bool:
        """True when the servant may run this program."""
        return subprocess.run(["test", "-x", program], check=False, **self.credentials()).returncode == 0


@cache
def servant() -> Servant:
    if os.geteuid():
        return Servant(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Servant(found.pw_uid, found.pw_gid)
    raise LookupError("we are root, and there is neither a user `postgres` nor a user `nobody` to run the server")


def open_copy(folder: Path, *parts: str) -> Path:
    """A copy of some parts of a folder where everybody may read it: a checkout may lie below a folder that is closed to
    the servant. It goes when this process ends."""
    copy = Path(mkdtemp(prefix="limpet-copy-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    for part in parts:
        shutil.copytree(folder / part, copy / part, symlinks=True)
    return copy
