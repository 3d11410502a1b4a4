"""Says whether the durability that was asked for is the one the file has."""

from __future__ import annotations

from limpet.core.view import Finding
from limpet.stores.sqlite.connection import Sync
from limpet.stores.sqlite.library import FIXED_VERSION, library, version
from limpet.stores.sqlite.tx import Statements

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"}


def findings(conn: Statements, path: str | None, sync: Sync) -> list[Finding]:
    """Library, journal, synchronous and file system, as found."""
    found = [_library()]
    if path is None:
        found.append(
            Finding("warning", "memory", "jobs are kept in memory and end with this process", "use a file URL")
        )
        return found
    mode = conn.execute("PRAGMA journal_mode").fetchone()[0]
    if mode == "wal":
        found.append(Finding("ok", "journal", "the journal is a write-ahead log"))
    else:
        found.append(
            Finding("error", "journal", f"the journal mode is {mode}, not wal", "put the file on a local disk")
        )
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


def _library() -> Finding:
    text = f"SQLite {library.sqlite_version} ({library.__name__})"
    if version() >= FIXED_VERSION:
        return Finding("ok", "library", text)
    return Finding(
        "warning",
        "library",
        f"{text} has the WAL-reset bug, which can corrupt a file under concurrent writers",
        "pip install pysqlite3",
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
