"""A real HTTP server on this machine that takes alerts: it keeps what it was told, and answers what a test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Told(Struct, frozen=True):
    """One request."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]


class Receiver:
    """What came, oldest first; `answers` are the next statuses, then 200. `hold` keeps answers back until it is set."""

    def __init__(self, port: int, scheme: str) -> None:
        self.url = f"{scheme}://127.0.0.1:{port}/hook"
        self.told: list[Told] = []
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}
        self.hold = threading.Event()
        self.hold.set()

    def take(self, told: Told) -> int:
        """Keep a request; the status of its answer."""
        self.told.append(told)
        self.hold.wait(60)
        return self.answers.pop(0) if self.answers else 200

    def firings(self) -> dict[str, list[str]]:
        """The states that were told with each key."""
        found: dict[str, list[str]] = {}
        for told in list(self.told):
            found.setdefault(told.key, []).append(told.json["state"])
        return found


@contextmanager
def receiver(certificate: Path | None = None) -> Iterator[Receiver]:
    """One on any port, until the end of the block; with a certificate (and its key, in one file) over TLS."""
    found: list[Receiver] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = found[0].take(Told(self.path, headers, body))
            self.send_response(status)
            for name, value in found[0].headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    found.append(Receiver(server.server_address[1], "http" if certificate is None else "https"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found[0]
    finally:
        found[0].hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
