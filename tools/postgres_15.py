"""Puts a PostgreSQL 15 beside the other test servers: `make tests` calls it, and it does nothing where there is one.

The wheel in the dev group brings 16 and 18. 15 is Debian 12's, unpacked into `.venv/postgres-15` with what it needs of
that release, down to the C library, so it runs on a newer or an older machine too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.flavours import MissingServer
from tests.servers.installations import POSTGRES_15, programs
from tools.debian import unpack

RELEASE = "bookworm"
PACKAGES = ("postgresql-15", "postgresql-client-15", "libpq5", "libc6", "libstdc++6", "libgcc-s1")
BENEATH = (  # libraries that those need, and what these need in turn
    *("libaudit1", "libcap-ng0", "libcap2", "libcom-err2", "libgcrypt20", "libgpg-error0", "libgssapi-krb5-2"),
    *("libicu72", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "libldap-2.5-0", "liblz4-1"),
    *("liblzma5", "libpam0g", "libreadline8", "libsasl2-2", "libssl3", "libsystemd0", "libtinfo6", "libxml2"),
    *("libzstd1", "zlib1g"),
)
# In place of each program: itself, by the loader of its release. All is found beside it, so a copy works too; and the
# program believes that it lies there, since that is how it finds the others and its files.
STARTER = """\
#!/bin/sh
root="${0%/*}/../../../../.."
exec "$root"/lib/TRIPLET/ld-linux-*.so.* --library-path "$root/lib/TRIPLET:$root/usr/lib/TRIPLET" \\
  --argv0 "$0" "${0%/*}/../programs/${0##*/}" "$@"
"""


def main() -> int:
    try:
        programs("postgres-15")
        return 0
    except MissingServer:
        sys.stdout.write("postgres-15: unpacking Debian's packages into .venv/postgres-15\n")
    if unpack((*PACKAGES, *BENEATH), POSTGRES_15, RELEASE):
        make_starters()
    programs("postgres-15")  # says what to do when there still is none
    return 0


def make_starters() -> None:
    """Put a starter before each program, and leave out the compiler, which would need a library of 100 MB."""
    home = POSTGRES_15 / "usr/lib/postgresql/15"
    (library,) = POSTGRES_15.glob("usr/lib/*-linux-*")
    (home / "lib" / "llvmjit.so").unlink(missing_ok=True)
    (home / "bin").rename(home / "programs")
    (home / "bin").mkdir()
    for program in (home / "programs").iterdir():
        starter = home / "bin" / program.name
        starter.write_text(STARTER.replace("TRIPLET", library.name))
        starter.chmod(0o755)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingServer as error:
        sys.exit(f"postgres-15: {error}")
