"""The command that answers HTTP: the API on one address, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec.structs import replace

from limpet import __version__
from limpet.cli.apps import nameless
from limpet.cli.logs import log_options, log_settings, say_line
from limpet.cli.mcp import mcp_guest
from limpet.cli.terminal import Terminal
from limpet.cli.words import command
from limpet.core.errors import UsageError
from limpet.core.settings import ServerTable, WorkerTable
from limpet.ops.codes import OK
from limpet.runtime.health import Health
from limpet.runtime.log_setup import setup_logging
from limpet.runtime.patient_store import Patience
from limpet.runtime.service_manager import ServiceManager
from limpet.runtime.signals import STOPS, obeyed
from limpet.stores.extras import extra_of, install_line

if TYPE_CHECKING:
    from limpet.app import Limpet
    from limpet.core.text.place import Place
    from limpet.server.api import Api

T = TypeVar("T")

WAIT_MS = 10 * 60_000  # as long as a worker waits for its store


@click.option("--host", metavar="ADDRESS", help="Where to listen (127.0.0.1); others need tokens.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port (8787); 0: any free one.")
@click.option("--no-wait", is_flag=True, help="Do not wait for a store that is away at the start: exit code 5.")
@click.option("--openapi", is_flag=True, help="Print the OpenAPI document of the API, and end.")
@log_options("info.")
async def serve_body(
    terminal: Terminal,
    host: str | None,
    port: int | None,
    no_wait: bool,
    openapi: bool,
    log: str | None,
    log_level: str | None,
) -> int:
    """Answer the HTTP API under /api/v1 until SIGTERM. On this machine alone, no request needs a token."""
    api_of = _api()
    if openapi:
        return _print_document()
    style = log or ("json" if terminal.json else None)
    logs = log_settings(style, log_level, WorkerTable(), setup=True, otherwise="INFO")
    terminal.json_log = logs.style == "json"
    setup_logging(logs)
    settings = _settings(terminal.config.file.server, host, port)
    terminal.openable(create=False)
    app, life = nameless(terminal), ServingLife()
    with obeyed(partial(_told, life.stop)):
        try:
            async with ServiceManager().attended(life.health, life.stop):
                if await _unless(life.stop, _reach(app, wait=not no_wait)):
                    await _serve(terminal, app, settings, life, api_of)
        finally:
            await app.close()
    return OK.exit


class ServingLife:
    """How far the server is, for its service manager."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.listens = False

    def health(self) -> Health:
        """It lives while its loop turns, which is why this is asked; it is ready while it listens."""
        return Health(unready="" if self.listens else "the server starts, or waits for the store")


def _print_document() -> int:
    from msgspec.json import encode
    from msgspec.json import format as indented

    from limpet.server.openapi import document
    from limpet.server.table import ROUTES

    print(indented(encode(document(ROUTES)), indent=2).decode())
    return OK.exit


def _settings(file: ServerTable, host: str | None, port: int | None) -> ServerTable:
    """What the flags say, else the [server] table."""
    bind = file.bind if host is None else host
    return replace(file, bind=bind, port=file.port if port is None else port)


def _api() -> Callable[..., Api]:
    """The class, or what to install for it."""
    try:
        from limpet.server.api import Api
    except ImportError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        raise UsageError("limpet serve needs packages that are not installed", fix=install_line(extra)) from error
    return Api


async def _reach(app: Limpet, *, wait: bool) -> bool:
    """Open the store: at once, or as soon as it can be reached."""
    if not wait:
        await app.store.open()
        return True
    await Patience(random.Random(), WAIT_MS, hint="the start waits up to 10m; with --no-wait it ends instead").ask(
        "open", app.store.open
    )
    return True


async def _unless(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """What `work` answers; None when a signal came first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()


async def _serve(
    terminal: Terminal, app: Limpet, settings: ServerTable, life: ServingLife, api_of: Callable[..., Api]
) -> None:
    from limpet.core.access.loopback import is_loopback
    from limpet.runtime.listening import listener_on, place_on
    from limpet.server.serving import Serving

    local = is_loopback(settings.bind)
    if not local:
        await _refuse_open(app, settings.bind)
    with listener_on(settings.bind, settings.port) as listener:

        def ready() -> None:
            life.listens = True
            _banner(terminal, app, settings, place_on(listener), local=local)

        api = api_of(app, settings=settings, alerts=terminal.config.file.alerts, local=local, guests=mcp_guest())
        await Serving(api, life.stop, ready).run_on(listener)


async def _refuse_open(app: Limpet, host: str) -> None:
    """Without a token no one could use a server for others: most likely it was meant for this machine."""
    from limpet.core.access.token import KIND, read_token

    tokens = [read_token(control) for control in await app.store.controls(KIND)]
    now_ms = await app.store.now()
    if not any(token is not None and token.state(now_ms) == "active" for token in tokens):
        raise UsageError(
            f"{host} can be reached by other machines, and namespace {app.namespace} has no token",
            fix="limpet tokens create --role admin makes one; or listen on 127.0.0.1",
        )


def _banner(terminal: Terminal, app: Limpet, settings: ServerTable, place: Place, *, local: bool) -> None:
    from limpet.server.page import is_built

    url = f"http://{place}"
    without = settings.loopback_role if local else "none"
    if terminal.json or terminal.json_log:
        shape = {
            "version": __version__,
            "listens": url,
            "url": terminal.place,
            "namespace": app.namespace,
            "loopback_role": without,
            "pid": os.getpid(),
        }
        if terminal.json:
            terminal.answer(shape)
        else:
            say_line("info", "server starts", **shape)
        return
    access = "every request needs a token" if without == "none" else f"{without} without a token, from this machine"
    terminal.say(f"limpet {__version__} serve {os.getpid()}: {url}")
    terminal.say(f"  store   {terminal.place}, namespace {app.namespace}")
    terminal.say(f"  access  {access}")
    if not is_built():
        terminal.say("  page    not built here, only the API answers: make web")


def _told(stop: asyncio.Event) -> None:
    """The first signal asks for the end; a second one ends the process, which is safe too."""
    stop.set()
    for number in STOPS:
        asyncio.get_running_loop().remove_signal_handler(number)


serve = command("serve")(serve_body)
