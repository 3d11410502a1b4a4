"""A job dies, and a receiver hears once that dead letters wait; a person discards the job, and it hears that, too.

The receiver is a small HTTP server that believes only what is signed. Run it: python examples/alerts.py
"""

import asyncio
import hashlib
import hmac
import json
import os
import tempfile
import time
from pathlib import Path

from limpet import Dead, Limpet
from limpet.ops import Operator

SECRET = "the receiver knows it, too"
SETTINGS = """
[alerts]
every = "100ms"

[alerts.rules]
dead_letters = { clear_after = "0s" }
store = false

[alerts.webhooks.pager]
url = "http://127.0.0.1:%d/"
secret_env = "PAGER_SECRET"
"""

app = Limpet("sqlite://")


@app.task(name="mail.send", queue="mail")
async def send(to: str) -> None:
    raise Dead(f"{to!r} is not an address")


def is_ours(headers: dict[str, str], body: bytes) -> bool:
    at = headers["limpet-timestamp"]
    made = hmac.new(SECRET.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    return abs(time.time() - int(at)) < 300 and hmac.compare_digest(f"sha256={made}", headers["limpet-signature"])


async def receive(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: asyncio.Queue[dict[str, str]]
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[1:-1]
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
    body = await reader.readexactly(int(headers["content-length"]))
    status = "204 No Content" if is_ours(headers, body) else "403 Forbidden"
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    await writer.drain()
    writer.close()
    told.put_nowait(json.loads(body))


def show(said: dict[str, str]) -> None:
    print(f"{said['state']} {said['rule']}:{said['subject']}: {said['text']}")


async def main() -> None:
    told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    receiver = await asyncio.start_server(lambda reader, writer: receive(reader, writer, told), "127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "limpet.toml"
        settings.write_text(SETTINGS % receiver.sockets[0].getsockname()[1])
        os.environ |= {"LIMPET_CONFIG": str(settings), "PAGER_SECRET": SECRET}
        async with app, receiver:
            stop = asyncio.Event()
            worker = asyncio.create_task(app.work(stop=stop))
            job = await send.enqueue("ada")
            show(await told.get())
            await Operator(app.store, "ada").discard([job.id], reason="a test")
            show(await told.get())
            stop.set()
            await worker


if __name__ == "__main__":
    asyncio.run(main())
