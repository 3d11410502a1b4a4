"""Decides which text every engine can keep, and what becomes of text that none can."""

from __future__ import annotations

from typing import Final

from limpet.core.errors import InvalidOption

REASON_CHARS: Final = 2_000  # why a job was put off, cancelled or failed: for people, not for data


def is_storable(text: str) -> bool:
    """False for what PostgreSQL text (no NUL) or UTF-8 (no half characters) cannot hold."""
    if text.isascii():
        return "\x00" not in text
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_text(text: str, *, what: str) -> str:
    """A caller's own text, if every engine can keep it; else it is refused by name."""
    if isinstance(text, str) and is_storable(text):
        return text
    raise InvalidOption(
        f"{what}={text!r:.80} cannot be stored",
        fix="pass whole characters without NUL; text.encode('utf-8', 'replace').decode() mends half ones",
    )


def storable(text: object, most: int = REASON_CHARS) -> str:
    """What was said, cut to size, with everything that no engine can keep written out.

    >>> storable("caf\\udce9")
    'caf\\\\udce9'
    """
    said = text if type(text) is str else spoken(text)
    if len(said) > most:
        said = said[: most - 1] + "…"
    if is_storable(said):
        return said
    return said.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def spoken(thing: object) -> str:
    """`str(thing)`, whatever its own __str__ does."""
    try:
        return str.__str__(str(thing))  # a subclass of str is not trusted with being cut and joined
    except (Exception, SystemExit, GeneratorExit) as broken:
        return f"(its message could not be read: {type(broken).__qualname__})"
