"""Answers HTTP: turns requests into calls of `ops`, and records into JSON. Needs the extra `server`."""

from __future__ import annotations

from limpet.server.api import Api
from limpet.server.caller import Caller

__all__ = ["Api", "Caller"]
