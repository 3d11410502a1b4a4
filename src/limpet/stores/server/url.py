"""Reads the parts that URLs of all servers have: hosts with ports, seconds, switches, and names that are close."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from limpet.core.errors import UsageError
from limpet.core.tasks.naming import nearest
from limpet.stores.shown import redacted

TIMEOUT_S: Final = 5.0  # how long a verb may take, reconnecting included, unless the URL says otherwise

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:@/\s]*))(?::(.*))?", re.DOTALL)
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def refuse_fragment(url: str, rest: str) -> None:
    """A # ends what a server sees of a URL: it was meant as a character."""
    if "#" in rest:
        raise UsageError(f"{redacted(url)!r} has a fragment", fix="write # as %23, in a password too")


def host_and_port(url: str, text: str, port: int, example: str) -> tuple[str, int] | None:
    """The host, maybe empty, and its port; None when the text is no host."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    digits = found.group(3)
    if digits is not None and not (is_count(digits) and 0 < int(digits) < 65536):
        raise UsageError(f"{redacted(url)!r} names no port from 1 to 65535 after the colon", fix=example)
    return unquote(found.group(1) or found.group(2)), int(digits) if digits else port


def is_count(text: str) -> bool:
    """True for digits alone."""
    return text.isascii() and text.isdigit()


def seconds(text: str) -> float:
    """An option that is a time. Raises ValueError."""
    value = float(text)
    if not (math.isfinite(value) and 0.1 <= value <= 600):
        raise ValueError(text)
    return value


def flag(text: str) -> bool:
    """An option that is a switch. Raises KeyError."""
    return _FLAGS[text.lower()]


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The fix for an unknown option."""
    close = nearest(name, list(known))
    return f"did you mean {close}?" if close else otherwise
