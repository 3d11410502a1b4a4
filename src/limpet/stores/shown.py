"""Says a store URL as it may be shown to people: without its passwords."""

from __future__ import annotations

import re
from typing import Final

_LOGIN: Final = re.compile(r"(?<=://)([^/?#]*)@")
_SPOILT_LOGIN: Final = re.compile(r"(?<=://)([^/].*)@")  # a password with a / that is not written as %2F
# A listen_url is a URL of its own, password and all.
_SECRET_OPTION: Final = re.compile(r"([?&](?:[^=&#]*password|listen_url)=)[^&#]*", re.IGNORECASE)


def redacted(url: str) -> str:
    """The URL with *** for each password. A lone word before the @ may be one too."""
    pattern = _LOGIN if _LOGIN.search(url) else _SPOILT_LOGIN
    return _SECRET_OPTION.sub(r"\1***", pattern.sub(_hidden, url, count=1))


def _hidden(match: re.Match[str]) -> str:
    user, colon, _ = match.group(1).partition(":")
    return f"{user}:***@" if colon else "***@"
