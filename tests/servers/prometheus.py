"""A Prometheus for tests: Debian's, or the machine's own; and promtool, which reads its rules."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FOLDER: Final = ROOT / ".venv" / "prometheus"  # where tools/prometheus.py unpacks Debian's package
HOW: Final = "make .venv/prometheus/.ready on Debian, or put prometheus and promtool on PATH"


class MissingPrometheus(Exception):
    """There is no Prometheus here."""


@cache
def program(name: str) -> str:
    """Where `prometheus` or `promtool` is."""
    named = os.environ.get(f"LIMPET_TEST_{name.upper()}")
    found = named or shutil.which(name, path=f"{FOLDER / 'usr' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise MissingPrometheus(f"no {name} here: {HOW}")
    return found
