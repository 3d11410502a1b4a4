"""Knows who runs the servers that refuse to be run by root."""

from __future__ import annotations

import contextlib
import os
import pwd
from functools import cache
from pathlib import Path
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


@cache
def servant() -> Servant:
    if os.geteuid():
        return Servant(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Servant(found.pw_uid, found.pw_gid)
    raise LookupError("we are root, and there is neither a user `postgres` nor a user `nobody` to run the server")
