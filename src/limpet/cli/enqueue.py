"""The command that asks for one job by its task's name."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from limpet.cli.apps import app_reference, load, nameless, refuse_memory
from limpet.cli.terminal import Terminal, reach
from limpet.cli.words import amounts, command, complete_queue, complete_task, duration, json_object
from limpet.core.errors import InvalidOption, LimpetError, QueueFull, StoreUnreachable
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.codes import CONFLICT, OK
from limpet.ops.names import UnknownTask, known_names
from limpet.ops.select import resolve
from limpet.ops.types import KnownTypes
from limpet.stores.open import missing_file

if TYPE_CHECKING:
    from limpet.app import Limpet
    from limpet.client.handle import JobHandle
    from limpet.client.options import CallOptions
    from limpet.stores.base import Store


@click.argument("task", shell_complete=complete_task)
@click.argument("args", type=json_object, default="{}")
@click.option("--app", "app_flag", metavar="MODULE:ATTR", help="Validate against this app (LIMPET_APP).")
@click.option("--unknown-ok", is_flag=True, help="Enqueue a task that the app does not declare; exit 1 without it.")
@click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="A queue other than the task's own.")
@click.option("--priority", metavar="WORD|0-9", help="critical, high, normal or low; 0 is the most urgent.")
@click.option("--delay", type=duration, help="Not before this time has passed (5m).")
@click.option("--at", metavar="ISO", help="Not before this instant (2026-01-31T08:00:00+01:00).")
@click.option("--expires-in", type=duration, help="Cancelled when not started within this time.")
@click.option("--unique", metavar="KEY", help="One job with this key at a time.")
@click.option("--unique-content", is_flag=True, help="One job with these arguments at a time.")
@click.option("--unique-for", type=duration, help="Keep the key for this long, success included.")
@click.option("--on-duplicate", type=click.Choice(["existing", "replace", "debounce"]), help="What a duplicate does.")
@click.option("--after", multiple=True, metavar="ID", help="Wait for this job; repeatable.")
@click.option("--if-parent-fails", type=click.Choice(["cancel", "run", "wait"]), help="What to do when a parent fails.")
@click.option("--needs", multiple=True, metavar="NAME", help="A capability the worker must have; repeatable.")
@click.option("--tag", "tags", multiple=True, metavar="NAME", help="Repeatable.")
@click.option("--meta", type=json_object, help="A JSON object for middleware and hooks, or @FILE; 4 KiB at most.")
@click.option("--tenant", metavar="NAME", help="The owner of the job, such as a customer. Tenants take turns.")
@click.option("--cost", multiple=True, metavar="N|UNIT=AMOUNT", help="Cost for limits; repeatable (usd=0.02).")
@click.option("--timeout", type=duration, help="Soft timeout of an attempt.")
@click.option("--attempts", type=click.IntRange(1), help="Runs in all, the first included.")
@click.option("--id", "id", metavar="UUID", help="The job's id; the same id again is the same job.")
@click.option("--wait-for-room", "room", type=duration, help="Wait for room in a full queue, at most this long.")
@click.option("--existing-ok", is_flag=True, help="Exit 0, not 4, when the job was stored before.")
@click.option("--wait", type=duration, help="Show a bar, and print the result; exit 7 after this time.")
async def enqueue_body(
    terminal: Terminal,
    task: str,
    args: dict[str, Any],
    app_flag: str | None,
    wait: int | None,
    existing_ok: bool,
    unknown_ok: bool,
    **asked: Any,
) -> int:
    """Enqueue one job of TASK with ARGS, one JSON object by parameter name (or @FILE, or - for stdin)."""
    began_s = time.monotonic()
    reference = app_reference(app_flag)
    app = nameless(terminal) if reference is None else load(terminal, reference)
    refuse_memory(app, "the job would end with this command")
    undeclared = reference is not None and task not in app.parts().tasks and task not in terminal.config.file.types
    if undeclared and not unknown_ok:
        raise _unknown(app, task, reference)
    try:
        made = missing_file(app.url)
        async with _reached(app, wait):
            terminal.say_made(made)
            is_type = task in terminal.config.file.types or await KnownTypes(app.store).of(task) is not None
            notes = [] if is_type else await _unsure(app, task, asked["queue"], reference)
            for note in notes:
                terminal.say(f"note: {note}")
            asked["after"] = [id_text(await resolve(app.store, parent)) for parent in asked["after"]]
            handle = await _ask(app, task, args, _options(asked))
            shape: dict[str, Any] = {
                "id": handle.id,
                "task": task,
                "existing": handle.existing,
                "notes": notes,
                "made": made,
            }
            if not terminal.json:
                terminal.text(handle.id)
            if handle.existing:
                terminal.say(f"job {handle.id} was there already")
            if wait is not None:
                left_ms = max(0, wait - round(1000 * (time.monotonic() - began_s)))
                shape["result"] = await _result(terminal, app.store, id_bytes(handle.id), left_ms, shape)
    finally:
        await app.close()
    if terminal.json:
        terminal.answer(shape)
    elif wait is not None:
        terminal.text(msgspec.json.encode(shape["result"]).decode())
    return CONFLICT.exit if handle.existing and not existing_ok and wait is None else OK.exit


@asynccontextmanager
async def _reached(app: Limpet, wait_ms: int | None) -> AsyncIterator[None]:
    """With the app's store open: at once, or as soon as it can be reached while the command waits anyway."""
    try:
        await reach(app.store, wait_ms or 0)
    except StoreUnreachable as error:
        message = error.message.removesuffix("; nothing was sent")
        raise StoreUnreachable(f"{message}; the job is not stored", verb="enqueue", fix=error.fix) from error
    async with app:
        yield


def _unknown(app: Limpet, task: str, reference: str | None) -> UnknownTask:
    hint = did_you_mean(task, app.tasks)
    return UnknownTask(
        f"{reference} declares no task {task!r}; nothing was stored",
        fix=f"{hint} (--unknown-ok stores a job of a task that another app declares)",
    )


async def _ask(app: Limpet, task: str, args: dict[str, Any], options: CallOptions) -> JobHandle[Any]:
    try:
        return await app.enqueue(task, args, **options)
    except QueueFull as error:
        raise QueueFull(error.message, fix=error.fix.replace("(wait=True)", "(--wait-for-room 30s)")) from error
    except InvalidOption as error:
        raise InvalidOption(_flags(error.message), fix=_flags(error.fix)) from error


def _flags(text: str) -> str:
    """What is said of Python's options, in the words of the command line: on_duplicate= is --on-duplicate here."""
    text = text.replace("unique=True", "--unique KEY")
    names = "priority|delay|at|expires_in|unique_for|on_duplicate|unique|after|needs|tags|tenant|cost|timeout|id"
    flag = {"tags": "tag"}
    return re.sub(
        rf"\b({names})=(?P<value>['\"\d-])?",
        lambda m: f"--{flag.get(m[1], m[1]).replace('_', '-')}{' ' + m['value'] if m['value'] else ''}",
        text,
    )


async def _result(terminal: Terminal, store: Store, id: bytes, wait_ms: int, shape: dict[str, Any]) -> msgspec.Raw:
    from limpet.cli.waiting import result_of

    try:
        return await result_of(terminal, store, id, wait_ms)
    except LimpetError:
        if terminal.json:
            terminal.answer(shape)  # there is no result, but there is a job: its id must not be lost
        raise


def _options(asked: dict[str, Any]) -> CallOptions:
    """What was given on the command line, in the words of `options()`; durations are seconds there."""
    given = {name: value for name, value in asked.items() if not (value is None or value is False or value in ((), []))}
    if "room" in given:
        given["wait"] = given.pop("room")
    for name in ("delay", "expires_in", "unique_for", "timeout", "wait"):
        if name in given:
            given[name] = given[name] / 1000
    if given.pop("unique_content", False):
        if "unique" in given:
            raise InvalidOption("--unique and --unique-content contradict each other", fix="give one of them")
        given["unique"] = True
    if "cost" in given:
        given["cost"] = amounts(given["cost"], "--cost")
    if (attempts := given.pop("attempts", None)) is not None:
        given["retry"] = attempts
    if "priority" in given and given["priority"].isdigit():
        given["priority"] = int(given["priority"])
    if "at" in given:
        try:
            given["at"] = datetime.fromisoformat(given["at"])
        except ValueError as error:
            raise InvalidOption(f"--at {given['at']!r} is not an instant", fix="2026-01-31T08:00:00+01:00") from error
    return cast("CallOptions", given)


async def _unsure(app: Limpet, task: str, queue: str | None, reference: str | None) -> list[str]:
    """Unknown names are accepted, because their worker may come later; a name that looks misspelt is told."""
    notes = []
    if reference is None:
        notes.append("without --app or LIMPET_APP only JSON and size were checked, not the task's signature")
    elif task not in app.parts().tasks:
        notes.append(f"{reference} declares no task {task!r}: only JSON and size were checked")
    tasks = set(app.parts().tasks) or await known_names(app.store, "task")
    for kind, name, names in (("task", task, tasks), ("queue", queue, await known_names(app.store, "queue"))):
        hint = "" if name is None or name in names else did_you_mean(name, names)
        if hint.startswith("did you mean"):
            notes.append(f"no {kind} is called {name!r} yet; {hint} The job waits for a worker that knows it.")
    return notes


enqueue = command("enqueue")(enqueue_body)
