"""Knows where things lie in a checkout, for tests that read the project itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "limpet"
CONTRACT = ROOT / "contract" / "src" / "limpet_contract"

_MADE = {"__pycache__", "build", "dist", "node_modules"}  # what tools leave behind; dot-folders are skipped by name


def written_files(top: Path = ROOT) -> Iterator[Path]:
    """Every file that people wrote, in a stable order."""
    for path in sorted(top.iterdir()):
        if path.is_dir():
            if path.name == ".ci" or not (path.name.startswith(".") or path.name in _MADE):
                yield from written_files(path)
        elif path.suffix not in {".pyc", ".so"} and ".db" not in path.name:
            yield path


def modules() -> list[Path]:
    """The Python files of the package and of its contract suite."""
    return [path for top in (PACKAGE, CONTRACT) for path in written_files(top) if path.suffix == ".py"]


def named(path: Path) -> str:
    """A path as people say it, for test ids and messages."""
    return path.relative_to(ROOT).as_posix()
