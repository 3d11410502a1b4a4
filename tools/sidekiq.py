"""Puts Sidekiq beside the other peers of the bench: `make bench-peers` calls it. It is Debian's, and so is its Ruby.

Both are unpacked into `.bench/sidekiq`, with what they need of that release but the C library, so it takes Debian 12 or
newer. Where that cannot be done, one line says that Sidekiq is left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.debian import unpack

SIDEKIQ: Final = Path(__file__).resolve().parent.parent / ".bench" / "sidekiq"
RELEASE: Final = "bookworm"
PACKAGES: Final = (
    *("ruby-sidekiq", "ruby-redis", "ruby-connection-pool", "ruby-rack", "ruby-hiredis", "libhiredis0.14"),
    *("ruby3.1", "libruby3.1", "ruby-rubygems"),
    *("libcrypt1", "libffi8", "libgmp10", "libreadline8", "libssl3", "libtinfo6", "libyaml-0-2", "zlib1g"),
)
# Where Ruby would look if it were installed: the packages' own folders, then those of its version.
CODE: Final = (
    "usr/share/rubygems-integration/all/gems/*/lib",
    "usr/lib/ruby/vendor_ruby",
    "usr/lib/ruby/3.1.0",
    "usr/lib/*/ruby/vendor_ruby/3.1.0",
    "usr/lib/*/ruby/3.1.0",
)
LIBRARIES: Final = ("usr/lib/*-linux-*", "lib/*-linux-*")
STARTER: Final = """\
#!/bin/sh
root="${0%/*}"
export LIMPET_BENCH_RUBY="$0" RUBYLIB="CODE" LD_LIBRARY_PATH="LIBRARIES"
exec "$root/usr/bin/ruby3.1" "$@"
"""


def main() -> int:
    """Leaves the program `ruby` in the folder if it can load Sidekiq."""
    starter = SIDEKIQ / "ruby"
    if unpack(PACKAGES, SIDEKIQ, RELEASE):
        starter.write_text(STARTER.replace("CODE", _path(CODE)).replace("LIBRARIES", _path(LIBRARIES)))
        starter.chmod(0o755)
        loads = [str(starter), "-e", 'require "sidekiq"; require "sidekiq/launcher"; require "hiredis"']
        if subprocess.run(loads, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return 0
        starter.unlink()
    sys.stdout.write("bench-peers: Debian's Sidekiq cannot be had here, so Sidekiq is left out\n")
    return 1


def _path(patterns: tuple[str, ...]) -> str:
    """The folders that are there, in this order, beneath the one that the starter lies in."""
    found = [folder for pattern in patterns for folder in sorted(SIDEKIQ.glob(pattern))]
    return ":".join(f"$root/{folder.relative_to(SIDEKIQ)}" for folder in found)


if __name__ == "__main__":
    sys.exit(main())
