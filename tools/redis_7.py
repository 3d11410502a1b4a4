"""Puts a Redis 7 beside the other test servers: `make tests` calls it, and it does nothing where there is one.

The wheels in the dev group bring Redis 6.2 and Valkey. Redis 7 is Debian's: its packages are unpacked into
`.venv/redis-7`, so no service is installed or started and nobody needs to be root.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.flavours import REDIS_7, MissingServer, program

# The server is a link into redis-tools; the last three are libraries that a bare Debian may lack.
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")


def apt(*words: str, cwd: Path) -> bool:
    """Call apt-get; its own words are shown only when this is the last way and it fails."""
    answer = subprocess.run(["apt-get", "-qq", *words], cwd=cwd, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.stderr.write(answer.stderr)
    return answer.returncode == 0


def private_lists(folder: Path) -> list[str]:
    """Options that keep the lists of packages in a folder of ours: those of the machine may be empty or old."""
    state, cache = folder / "state", folder / "cache"
    (state / "lists" / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    return ["-o", f"Dir::State={state}", "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", f"Dir::Cache={cache}"]


def fetch(folder: Path) -> bool:
    """Download the packages into `folder`, by the machine's own lists first."""
    if apt("download", *PACKAGES, cwd=folder):
        return True
    private = private_lists(folder)
    return apt(*private, "update", cwd=folder) and apt(*private, "download", *PACKAGES, cwd=folder)


def main() -> int:
    try:
        program("redis-7")
        return 0
    except MissingServer:
        sys.stdout.write("redis-7: unpacking Debian's packages into .venv/redis-7\n")
    with TemporaryDirectory() as name:
        if fetch(Path(name)):
            REDIS_7.mkdir(parents=True, exist_ok=True)
            for package in sorted(Path(name).glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", package, REDIS_7], check=True)
    program("redis-7")  # says what to do when there still is none
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (MissingServer, FileNotFoundError) as error:
        sys.exit(f"redis-7: {error}")
