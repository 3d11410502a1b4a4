"""The command that relays an outbox to the store, and makes or mends its table."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import asdict

from limpet import __version__
from limpet.cli.apps import app_reference
from limpet.cli.logs import log_options, log_settings, say_line
from limpet.cli.preflight import Question, ask
from limpet.cli.terminal import Terminal
from limpet.cli.words import command, duration
from limpet.core.errors import UsageError
from limpet.core.settings import WorkerTable
from limpet.ops.codes import OK, REFUSED
from limpet.runtime.log_setup import LogSettings, setup_logging
from limpet.runtime.signals import STOPS, obeyed
from limpet.stores.base import MAX_BATCH_JOBS
from limpet.stores.open import is_memory, located, missing_file, open_store, redacted

if TYPE_CHECKING:
    from limpet.cli.preflight import Refusal
    from limpet.outbox import Place
    from limpet.outbox.carrier import Report
    from limpet.outbox.table import Table
    from limpet.stores.base import Store

SHOWN = 1_000  # rows that --failed lists


class Ends(Struct, frozen=True):
    """Both ends of the way: the outbox, and the store that its jobs go to."""

    place: Place
    url: str
    namespace: str


@click.argument("app", required=False, metavar="[MODULE:ATTR]")
@click.option("--app", "app_flag", metavar="MODULE:ATTR", help="The app whose settings are used (LIMPET_APP).")
@click.option("--outbox", "outbox_url", metavar="URL", help="The database that holds the outbox (LIMPET_OUTBOX).")
@click.option("--create", is_flag=True, help="Create the tables if they are missing.")
@click.option("--sql", is_flag=True, help="Print what --create would run, for your own migrations.")
@click.option("--failed", is_flag=True, help="List jobs that were set aside, and why.")
@click.option("--retry-failed", is_flag=True, help="Put jobs that were set aside back to their positions.")
@click.option("--once", is_flag=True, help="Relay the waiting jobs, then end; exit code 1 if jobs are left.")
@click.option("--batch", type=click.IntRange(1, MAX_BATCH_JOBS), default=500, show_default=True, help="Jobs at a time.")
@click.option("--cut-off", type=duration, default="10m", show_default=True, help="Exit with 5 after such an outage.")
@click.option("--no-wait", is_flag=True, help="Do not wait for a store that is away at the start: exit code 5.")
@log_options("info; with --once, warning.")
async def outbox_body(
    terminal: Terminal,
    app: str | None,
    app_flag: str | None,
    outbox_url: str | None,
    create: bool,
    sql: bool,
    failed: bool,
    retry_failed: bool,
    once: bool,
    batch: int,
    cut_off: int,
    no_wait: bool,
    log: str | None,
    log_level: str | None,
) -> int:
    """Relay jobs from the outbox in your database to the store until SIGTERM: in order, each once."""
    relays = once or not (sql or create or failed or retry_failed)
    stop = asyncio.Event()
    with obeyed(partial(_told, stop)) if relays else nullcontext():
        logs = _log(terminal, log, log_level, once=once) if relays else LogSettings()
        ends = await _ends(terminal, app_reference(app or app_flag), outbox_url, stop, logs)
        if ends is None:
            return OK.exit
        if not isinstance(ends, Ends):
            terminal.refuse(ends.code, ends.message, ends.fix)
            return ends.exit
        if sql:
            return _print_sql(terminal, ends)
        from limpet.outbox.relay import Relay
        from limpet.outbox.table import open_table

        table = open_table(ends.place, ends.namespace)
        try:
            said: dict[str, object] = {"outbox": ends.place.shown, "namespace": ends.namespace}
            if create:
                await table.create()
                said["created"] = True
                terminal.say(f"the tables are in {ends.place.shown}")
            if retry_failed:
                said["retried"] = count = await table.retry_failed()
                terminal.say(f"{count:,} jobs wait to be relayed again")
            if failed:
                return await _list_failed(terminal, table)
            if not relays:
                if terminal.json:
                    terminal.answer(said)
                return OK.exit
            said |= {"url": located(ends.url)}
            store, new = _store(ends), missing_file(ends.url)
            try:
                relay = Relay(store, table, batch=batch, cut_off_ms=cut_off)
                if once or no_wait:
                    await relay.begin()
                if once:
                    terminal.say_made(new)  # without --once the log says it
                if not once:
                    _banner(terminal, ends, said)
                return await _tell(terminal, table, said, await relay.run(stop, once=once), once=once)
            finally:
                await store.close()
        finally:
            await table.close()


async def _ends(
    terminal: Terminal, reference: str | None, outbox_url: str | None, stop: asyncio.Event, logs: LogSettings
) -> Ends | Refusal | None:
    """Where from and where to: as an app says, else as environment and configuration file do; flags come first."""
    from limpet.config import load_config
    from limpet.outbox import parse_outbox, refuse_needless

    config = load_config(flag_url=terminal.flag_url, flag_namespace=terminal.flag_namespace, flag_outbox=outbox_url)
    url, namespace = config.url.value, config.namespace.value
    found = None if config.outbox is None else config.outbox.value
    if reference is not None:
        question = Question(reference, terminal.flag_url, terminal.flag_namespace, only_settings=True, log=logs)
        answer = await ask(question, stop)
        if answer is None:
            return None
        if answer.refusal is not None:
            return answer.refusal
        url, namespace, found = answer.url, answer.namespace, outbox_url or answer.outbox or None
    if found is None:
        raise UsageError(
            "which outbox?", fix="Limpet(url, outbox=...), --outbox, LIMPET_OUTBOX or outbox in limpet.toml"
        )
    place = parse_outbox(found)
    refuse_needless(place, url)
    return Ends(place, url, namespace)


def _print_sql(terminal: Terminal, ends: Ends) -> int:
    from limpet.outbox.table import schema

    text = schema(ends.place.dialect)
    if terminal.json:
        terminal.answer({"outbox": ends.place.shown, "sql": text})
    else:
        terminal.text(text.rstrip())
    return OK.exit


async def _list_failed(terminal: Terminal, table: Table) -> int:
    rows = await table.failed(SHOWN)
    terminal.table(
        "failed",
        ("job", "queue", "task", "error"),
        [(row.id, row.queue, row.task, row.error) for row in rows],
        [asdict(row) for row in rows],
    )
    return OK.exit


def _log(terminal: Terminal, log: str | None, level: str | None, *, once: bool) -> LogSettings:
    style, otherwise = log or ("json" if terminal.json else None), "WARNING" if once else "INFO"
    logs = log_settings(style, level, WorkerTable(), setup=True, otherwise=otherwise)
    terminal.json_log = logs.style == "json"
    setup_logging(logs)
    return logs


def _store(ends: Ends) -> Store:
    if is_memory(ends.url):
        raise UsageError(
            f"{redacted(ends.url)} is a store in memory, which ends with this command",
            fix="name the store of your workers: --url redis://...",
        )
    return open_store(ends.url, ends.namespace)


async def _tell(terminal: Terminal, table: Table, said: dict[str, object], report: Report, *, once: bool) -> int:
    left = await table.tally() if once else None
    words = f"{report.relayed:,} relayed, {report.duplicates:,} of them duplicates"
    if left is None:
        terminal.say(words)
        return OK.exit
    if terminal.json:
        counts = {"relayed": report.relayed, "duplicates": report.duplicates}
        terminal.answer({**said, **counts, "waiting": left.waiting, "failed": left.failed})
    else:
        terminal.text(f"{words}; {left.waiting:,} wait, {left.failed:,} are set aside")
        if left.failed:
            terminal.say("limpet outbox --failed says why; --retry-failed puts them back to their positions")
    return REFUSED.exit if left.waiting or left.failed else OK.exit


def _banner(terminal: Terminal, ends: Ends, said: dict[str, object]) -> None:
    if terminal.json:
        terminal.answer({"version": __version__, **said, "pid": os.getpid()})
        return
    if terminal.json_log:
        say_line("info", "outbox starts", version=__version__, **said)
        return
    terminal.say(f"limpet {__version__} outbox {os.getpid()}: {ends.place.shown}")
    terminal.say(f"  store   {located(ends.url)}, namespace {ends.namespace}")


def _told(stop: asyncio.Event) -> None:
    """The first signal asks for the end; a second one ends the process, which is safe too."""
    stop.set()
    for number in STOPS:
        asyncio.get_running_loop().remove_signal_handler(number)


outbox = command("outbox")(outbox_body)
