"""Decides which address and port a text such as `0.0.0.0:8080` names, for sockets that listen."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from limpet.core.errors import InvalidOption

LOOPBACK: Final = "127.0.0.1"
_PLACE: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):)?(?P<port>\d{1,5})")


class Place(Struct, frozen=True):
    """An address and a port; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """As a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place_of(value: int | str, *, what: str) -> Place:
    """Read `[HOST:]PORT`; without a host it is this machine alone."""
    found = _PLACE.fullmatch(str(value))
    if found is None or int(found["port"]) > 65_535:
        raise InvalidOption(
            f"{what} {value!r} is not a port, nor an address and a port",
            fix="write 8080 for this machine alone, or 0.0.0.0:8080 for others too; IPv6 as [::]:8080",
        )
    host = found["host"] or LOOPBACK
    return Place(host.strip("[]"), int(found["port"]))
