"""Puts a PgBouncer beside the other test servers: `make tests` calls it, and it does nothing where there is one.

The tests need one that can keep prepared statements, which Debian has since its release 13. What that one needs of
its release, down to the C library, is unpacked beside it into `.venv/pgbouncer`, so it runs on an older machine too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.flavours import MissingServer
from tests.servers.pgbouncer import PGBOUNCER, program
from tools.debian import unpack

RELEASE = "trixie"
PACKAGES = ("pgbouncer", "libc6", "libcares2", "libevent-2.1-7t64", "libpam0g", "libssl3t64", "libsystemd0")
BENEATH = ("libaudit1", "libcap-ng0", "libcap2", "libzstd1", "zlib1g")  # what those need in turn


def main() -> int:
    try:
        program()
        return 0
    except MissingServer:
        sys.stdout.write("pgbouncer: unpacking Debian's packages into .venv/pgbouncer\n")
    unpack((*PACKAGES, *BENEATH), PGBOUNCER, RELEASE)
    program()  # says what to do when there still is none
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingServer as error:
        sys.exit(f"pgbouncer: {error}")
