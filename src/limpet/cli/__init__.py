"""Speaks to terminals: turns a command line into calls of `ops`, and answers into tables or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    if words in (["--version"], ["-V"]):
        from limpet import __version__

        print(f"limpet {__version__}")
        return 0
    import logging

    from limpet.cli.root import run

    # What an engine logs is said by `doctor` and by workers, which set up their logs; other commands stay readable.
    logging.getLogger("limpet").addHandler(logging.NullHandler())
    return run(words)
