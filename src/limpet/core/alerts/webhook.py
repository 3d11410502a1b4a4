"""Decides what a webhook is in the settings of a process: where it is, in which form it is told, and what signs it."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from limpet.core.errors import InvalidOption

Format = Literal["json", "slack"]

USUAL_TIMEOUT_MS: Final = 10_000
LONGEST_TIMEOUT_MS: Final = 30_000


class Webhook(Struct, frozen=True):
    """One receiver of alerts. Its `url` may be as secret as a password: it is shown nowhere."""

    name: str
    url: str
    format: Format = "json"
    secret: str = ""  # "": not signed
    timeout_ms: int = USUAL_TIMEOUT_MS

    @property
    def host(self) -> str:
        """All of its address that is told."""
        return urlsplit(self.url).hostname or ""

    def __repr__(self) -> str:
        return f"<webhook {self.name} at {self.host}>"


def checked_url(url: str, *, where: str) -> str:
    """The address of a receiver; a refusal does not repeat it, as it may be a secret."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or any(each.isspace() for each in url):
        raise InvalidOption(f"{where}: url is not an address", fix="such as https://hooks.example.com/limpet")
    if parts.username is not None:
        raise InvalidOption(
            f"{where}: url has a user name in it", fix="put what proves the sender into the path, or use secret_env"
        )
    return url
