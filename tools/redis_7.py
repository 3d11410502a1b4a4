"""Puts a Redis 7 beside the other test servers: `make matrix` needs it, and it does nothing where there is one.

The wheels in the dev group bring Redis 6.2 and Valkey. Redis 7 is Debian's, unpacked into `.venv/redis-7`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.flavours import REDIS_7, MissingServer, program
from tools.debian import unpack

# The server is a link into redis-tools; the last three are libraries that a bare Debian may lack.
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")


def main() -> int:
    try:
        program("redis-7")
        return 0
    except MissingServer:
        sys.stdout.write("redis-7: unpacking Debian's packages into .venv/redis-7\n")
    unpack(PACKAGES, REDIS_7)
    program("redis-7")  # says what to do when there still is none
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingServer as error:
        sys.exit(f"redis-7: {error}")
