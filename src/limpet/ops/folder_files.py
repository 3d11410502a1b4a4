"""Reads and writes the files of a folder: whole or not at all, and only what has changed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from limpet.core.errors import InvalidOption
from limpet.core.folder.salvage import is_plain_list

BREAKERS: Final = "circuit-breakers"
REJECTED: Final = "rejected"


def path_of(folder: Path, name: str) -> Path:
    """The file of that name."""
    return folder / f"{name}.json"


def text_of(folder: Path, name: str) -> str | None:
    """What a file holds; None when there is none."""
    try:
        return path_of(folder, name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidOption(f"{path_of(folder, name)} cannot be read: {error}", fix="correct its rights") from error


def put_entries(folder: Path, name: str, entries: list[dict[str, Any]]) -> bool:
    """Write the entries of a file, in the form that it has; False when it says so already."""
    before = text_of(folder, name)
    plain = before is not None and is_plain_list(before)
    return put(folder, name, entries if plain else {"tasks": entries}, before)


def put(folder: Path, name: str, value: Any, before: str | None = None) -> bool:
    """Write a file as a whole: beside it, and then in its place. A reader sees the old one or the new one."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
    if text == (text_of(folder, name) if before is None else before):
        return False
    path = path_of(folder, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise InvalidOption(f"{path} cannot be written: {error}", fix="name another --folder") from error
    return True
