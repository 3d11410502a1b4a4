"""Mount the HTTP API in an app of your own, with your own login; its pages ask the API for their user.

Run: python examples/mounted.py
Prints what a user may see, and what a stranger is told. Needs limpet[server].
"""

import asyncio
import json
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from limpet import Limpet
from limpet.server import Api, Caller

USERS = {
    "cookie-of-ada": Caller("user:ada", "operator"),
    "cookie-of-bob": Caller("user:bob", "viewer", frozenset({"mail"})),
}

folder = tempfile.TemporaryDirectory()
jobs = Limpet(f"sqlite:///{folder.name}/jobs.db")


@jobs.task(name="mail.send", queue="mail")
async def send(to: str) -> None: ...


async def signed_in(request: Request) -> Caller | None:
    """Your own login; where it answers None, a token is asked for."""
    return USERS.get(request.headers.get("cookie", ""))


api = Api(jobs, auth=signed_in)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with jobs, api.lifespan():  # a mounted app's own lifespan is not run
        yield


async def sign_up(request: Request) -> PlainTextResponse:
    job = await send.enqueue(to="carol@example.com")
    return PlainTextResponse(job.id)


app = Starlette(routes=[Route("/sign-up", sign_up, methods=["POST"]), Mount("/jobs", api)], lifespan=lifespan)


def ask(url: str, cookie: str = "", method: str = "GET") -> Any:
    """What a browser would be told."""
    body = b"" if method == "POST" else None
    request = urllib.request.Request(url, body, {"cookie": cookie}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            text = refused.read().decode()
    return json.loads(text) if text.startswith("{") else text


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    here = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    id = await asyncio.to_thread(ask, f"{here}/sign-up", method="POST")
    job = await asyncio.to_thread(ask, f"{here}/jobs/api/v1/jobs/{id}", "cookie-of-bob")
    print(f"bob sees {job['task']}: {job['state']}")
    refused = await asyncio.to_thread(ask, f"{here}/jobs/api/v1/queues/mail/pause", "cookie-of-bob", "POST")
    print(f"bob: {refused['status']} {refused['detail']}")
    paused = await asyncio.to_thread(ask, f"{here}/jobs/api/v1/queues/mail/pause", "cookie-of-ada", "POST")
    print(f"ada: {paused['key']} is {paused['state']}")
    stranger = await asyncio.to_thread(ask, f"{here}/jobs/api/v1/stats")
    print(f"a stranger: {stranger['status']} {stranger['title']}")
    server.should_exit = True
    await serving
    folder.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
