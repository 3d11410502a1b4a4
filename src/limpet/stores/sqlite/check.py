"""Says whether the durability that was asked for is the one the file has."""

from __future__ import annotations

import logging

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Finding
from limpet.stores.sqlite.connection import Sync
from limpet.stores.sqlite.library import FIXED_VERSION, INSTALL, is_safe, library
from limpet.stores.sqlite.tx import Statements

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"}

logger = logging.getLogger("limpet.stores.sqlite")


def findings(conn: Statements, path: str | None, sync: Sync) -> list[Finding]:
    """Library, journal, synchronous and file system, as found."""
    return [*promises(path, sync), *([] if path is None else [_journal(conn)])]


def startup(path: str | None, sync: Sync, *, strict: bool) -> None:
    """Warn of what may damage the file, before it is touched; with `strict`, refuse whatever may lose a job."""
    bad = sorted((one for one in promises(path, sync) if one.level != "ok"), key=lambda one: one.level)
    if bad and strict:
        first = bad[0]  # "error" sorts before "warning"
        raise StoreError(f"refused, because strict=1 and {first.text}", verb="open", fix=first.fix)
    for finding in bad:
        if finding.level == "error":  # the others were asked for in the URL
            logger.error("%s (%s)", finding.text, finding.fix)


def promises(path: str | None, sync: Sync) -> list[Finding]:
    """All that decides whether an acknowledged job can be lost, as far as it can be known without the file."""
    found = [_library(path)]
    if path is None:
        return [
            *found,
            Finding("warning", "memory", "jobs are kept in memory and end with this process", "use a file URL"),
        ]
    if sync == "full":
        found.append(Finding("ok", "sync", "every commit reaches the disk (sync=full)"))
    else:
        text = "sync=normal: kill -9 loses nothing, a power cut may lose the last commits"
        found.append(Finding("warning", "sync", text, "use ?sync=full"))
    kind = _file_system(path)
    if kind in NETWORK:
        text = f"the file is on a network file system ({kind}), whose locks cannot be trusted"
        found.append(Finding("error", "network", text, "move it to a local disk, or use PostgreSQL"))
    return found


def _journal(conn: Statements) -> Finding:
    mode = conn.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        return Finding("ok", "journal", "the journal is a write-ahead log")
    return Finding("error", "journal", f"the journal mode is {mode}, not wal", "put the file on a local disk")


def _library(path: str | None) -> Finding:
    text = f"SQLite {library.sqlite_version} ({library.__name__})"
    if is_safe() or path is None:  # memory has no write-ahead log
        return Finding("ok", "library", text)
    fixed = ".".join(map(str, FIXED_VERSION))
    return Finding(
        "error",
        "library",
        f"{text} can corrupt the file when several processes write it: the WAL-reset bug, fixed in {fixed}",
        f"use a Python that is linked with SQLite {fixed} or newer, or {INSTALL}",
    )


def _file_system(path: str) -> str:
    best, kind = "", ""
    try:
        with open("/proc/mounts") as mounts:
            for line in mounts:
                _, where, what, *_ = line.split()
                if path.startswith(where) and len(where) > len(best):
                    best, kind = where, what
    except OSError:
        return ""
    return kind
