"""Puts Prometheus and promtool beside the test servers: `make matrix` needs them; where they are, it does nothing.

They are Debian's, unpacked into `.venv/prometheus`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.prometheus import FOLDER, MissingPrometheus, program
from tools.debian import unpack

PACKAGES = ("prometheus",)


def main() -> int:
    try:
        program("promtool")
        return 0
    except MissingPrometheus:
        sys.stdout.write("prometheus: unpacking Debian's package into .venv/prometheus\n")
    unpack(PACKAGES, FOLDER)
    program("promtool")  # says what to do when there still is none
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MissingPrometheus as error:
        sys.exit(f"prometheus: {error}")
