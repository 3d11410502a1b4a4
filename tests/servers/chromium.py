"""Knows the browser that the page is tested in: the machine's own, or the one that tools/chromium.py unpacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.servers.flavours import ROOT

CHROMIUM: Final = ROOT / ".venv" / "chromium"
NAMES: Final = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")


class MissingBrowser(Exception):
    """There is no browser for the tests."""


@cache
def program() -> Path:
    """The program; LIMPET_TEST_CHROMIUM names another."""
    for found in _candidates():
        if found.is_file():
            return found
    raise MissingBrowser(
        "the tests need a Chromium and find none: make .venv/chromium/.ready on Debian, or name the program in "
        "LIMPET_TEST_CHROMIUM"
    )


def _candidates() -> Iterator[Path]:
    named = os.environ.get("LIMPET_TEST_CHROMIUM")
    if named:
        yield Path(named)
    yield CHROMIUM / "chromium"
    yield from (Path(found) for name in NAMES if (found := shutil.which(name)))
