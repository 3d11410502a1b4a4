"""Makes one request to a webhook, in bounded time: no redirect is followed, and no more than the head is read."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from limpet.core.alerts.delivery import Call
from limpet.core.alerts.webhook import Webhook

MOST_HEAD: Final = 16_384  # bytes of an answer that are read
AGAIN: Final = frozenset({408, 425, 429})  # beside 5xx: another attempt may succeed
RETRY_AFTER: Final = b"retry-after:"


class Answer(Struct, frozen=True):
    """What became of the request: a status, or 0 and why there was none."""

    status: int
    text: str
    retry_after_ms: int | None = None

    @property
    def ok(self) -> bool:
        """The receiver has taken it."""
        return 200 <= self.status < 300

    @property
    def may_succeed_later(self) -> bool:
        """False when the receiver, or its address, has to be changed first."""
        return not self.status or self.status >= 500 or self.status in AGAIN


async def tell(webhook: Webhook, call: Call) -> Answer:
    """Post it. The words never name more of the address than its host."""
    try:
        async with asyncio.timeout(webhook.timeout_ms / 1000):
            head = await _post(webhook.url, call)
    except TimeoutError:
        return Answer(0, f"{webhook.host} did not answer within {webhook.timeout_ms / 1000:g} s")
    except asyncio.LimitOverrunError:
        return Answer(0, f"{webhook.host} answered with a head of more than {MOST_HEAD:,} bytes")
    except (OSError, EOFError, ValueError) as error:  # no address, no connection, no certificate; cut off
        return Answer(0, f"{webhook.host} cannot be reached: {type(error).__name__}")
    return _read(webhook.host, head)


async def _post(url: str, call: Call) -> bytes:
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    # Reading the certificates of the system takes tens of milliseconds, which a worker's loop does not have.
    context = await asyncio.to_thread(ssl.create_default_context) if is_tls else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=MOST_HEAD)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        at = named if parts.port is None else f"{named}:{port}"
        headers = {"Host": at, **call.headers, "Content-Length": str(len(call.body)), "Connection": "close"}
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + call.body)
        await writer.drain()
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


def _read(host: str, head: bytes) -> Answer:
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Answer(0, f"{host} did not answer in HTTP")
    status = int(words[1])
    after = next((line[len(RETRY_AFTER) :].strip() for line in lines if line.lower().startswith(RETRY_AFTER)), b"")
    after_ms = int(after) * 1000 if after.isdigit() and len(after) < 7 else None
    return Answer(status, f"{host} answered {status}", after_ms)
