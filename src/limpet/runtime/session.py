"""Makes the name under which a worker is known to the store."""

from __future__ import annotations

import os
import secrets
import socket


def session_name() -> str:
    """A name that no other worker has, and that tells people where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
