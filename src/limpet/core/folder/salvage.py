"""Decides what of a file of entries can be read: the whole, or of a damaged one the entries before the damage."""

from __future__ import annotations

import json
from typing import Any, Final

LISTS: Final = ("tasks", "items", "queue", "entries")  # where the entries lie in an object


def entries_in(text: str) -> tuple[list[Any], str]:
    """The entries of a file, and what is wrong with it in words; nothing when all could be read."""
    if not text.strip():
        return [], "it is empty"
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        return _before_the_damage(text, str(error))
    if isinstance(found, list):
        return found, ""
    if isinstance(found, dict):
        for name in LISTS:
            if isinstance(found.get(name), list):
                return found[name], ""
        if found and all(isinstance(each, dict) for each in found.values()):  # by id
            return [{"id": name, **each} for name, each in found.items()], ""
        return ([], "") if not found else ([], "it holds no list of entries")
    return [], "it holds no list of entries"


def is_plain_list(text: str) -> bool:
    """Whether a file of entries is a list, and not an object around one."""
    return text.lstrip().startswith("[")


def _before_the_damage(text: str, why: str) -> tuple[list[Any], str]:
    decoder, found = json.JSONDecoder(), list[Any]()
    at = text.find("[") + 1
    while at > 0:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            entry, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            break
        found.append(entry)
    return found, f"it is damaged ({why}); {len(found)} entries before that were read"
