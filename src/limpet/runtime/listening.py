"""Opens the sockets that a command listens on."""

from __future__ import annotations

import errno
import socket
from typing import Final

from limpet.core.errors import UsageError
from limpet.core.text.place import Place

BACKLOG: Final = 2_048


def listener_on(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """A socket that listens; port 0 takes any. `option` is the flag that chooses another port."""
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        fix = f"another program has this port: choose one with {option}" if taken else "give an address of this machine"
        why = (error.strerror or str(error)).partition(" (")[0]
        raise UsageError(f"cannot listen on {Place(host, port)}: {why}", fix=fix) from error
    # Connections inherit it. Without it the kernel keeps a body back until the client has acknowledged the head: 40 ms.
    # The event loop does it only for sockets that name their protocol, and these do not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def place_on(listener: socket.socket) -> Place:
    """Where it listens."""
    host, port, *_ = listener.getsockname()
    return Place(host, port)
