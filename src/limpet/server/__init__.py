"""Answers HTTP: turns requests into calls of `ops`, and records into JSON. Needs the extra `server`."""

from __future__ import annotations
