"""The command that says what an error means for a job, and why."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from limpet.cli.apps import app_reference, load
from limpet.cli.terminal import Terminal
from limpet.cli.words import command, read_json
from limpet.core.endings.transition import Hold
from limpet.core.errors import InvalidOption, LimpetError, UsageError

if TYPE_CHECKING:
    from limpet.core.endings.verdict import Classifier
    from limpet.core.tasks.task import TaskSpec
    from limpet.ops.verdicts import Told


@click.argument("target", required=False, metavar="[MODULE:ERROR]")
@click.option("--status", type=click.IntRange(400, 599), help="As if the answer had this HTTP status.")
@click.option("--code", metavar="WORD", help="And this error code.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="And this header; repeatable.")
@click.option("--body", metavar="JSON", help="And this body (or @FILE, or - for stdin).")
@click.option("--task", "task", metavar="NAME", help="For a job of this task: its classify=, retries and limits.")
@click.option("--app", "app_flag", metavar="MODULE:ATTR", help="The app, for its classify= (LIMPET_APP).")
@click.option("--list", "lists", is_flag=True, help="List all rules, in the order in which they are tried.")
async def classify_body(
    terminal: Terminal,
    target: str | None,
    status: int | None,
    code: str | None,
    headers: tuple[str, ...],
    body: str | None,
    task: str | None,
    app_flag: str | None,
    lists: bool,
) -> None:
    """Say what an error means for its job, by which rule, and what happens to the job.

    MODULE:ERROR is an exception class, such as openai:RateLimitError or ValueError; without one, --status, --code
    and --body describe an answer. Nothing is run and no store is asked.
    """
    from limpet.ops.verdicts import AnError, known_rules, sample_of, tell

    spec, specs, overrides = _said(terminal, app_flag, task)
    if lists:
        if target is not None:
            raise UsageError("--list lists all rules", fix=f"leave it out to ask about {target}")
        rules = known_rules([spec] if spec is not None else specs, overrides)
        rows = [(rule.kind or "when asked", rule.by, rule.what) for rule in rules]
        shapes = [{"kind": rule.kind, "by": rule.by, "what": rule.what} for rule in rules]
        terminal.table("rules", ("means", "by", "what"), rows, shapes)
        return
    answer = {"status": status, "code": code, "headers": _headers(headers), "body": _json(body)}
    if target is None and not any(value for value in answer.values()):
        raise UsageError("which error?", fix="limpet classify module:Error, --status 429, or --list for all rules")
    sample = sample_of(AnError if target is None else _error(target), **answer)
    told = tell(sample, spec=spec, app=overrides, now_ms=time.time_ns() // 1_000_000)
    if terminal.machine:
        terminal.answer(_shape(told, target, task))
        return
    what = ", ".join(f"{name} {value}" for name, value in (("status", status), ("code", code)) if value is not None)
    name = "an answer" if target is None else told.error
    terminal.text(f"{name}{f' with {what}' if what else ''}{f', in a job of {task}' if task else ''}")
    terminal.text(f"  kind  {told.kind or 'signal'}: {told.means}")
    terminal.text(f"  why   {told.why}")
    terminal.text(f"  then  {told.then}")
    for note in told.notes:
        terminal.say(f"note: {note}")


def _said(
    terminal: Terminal, flag: str | None, task: str | None
) -> tuple[TaskSpec | None, list[TaskSpec], tuple[Classifier, ...]]:
    """What the app and its tasks say of errors; nothing without an app."""
    from limpet.core.tasks.naming import did_you_mean
    from limpet.ops.names import UnknownName

    reference = app_reference(flag)
    if reference is None:
        if task is not None:
            raise UsageError(f"--task {task} is a task of an app", fix="name it: --app MODULE:ATTR, or LIMPET_APP")
        return None, [], ()
    parts = load(terminal, reference).parts()
    if task is not None and task not in parts.tasks:
        raise UnknownName(f"{reference} has no task {task!r}", fix=did_you_mean(task, parts.tasks))
    spec = None if task is None else parts.tasks[task]
    tasks = [each for each in parts.tasks.values() if each.alias_of is None]
    return spec, tasks, tuple(parts.classifiers)


def _error(target: str) -> type[BaseException]:
    """The exception class that a word on the command line means."""
    from limpet.core.tasks.naming import did_you_mean
    from limpet.runtime.loading import load_module

    place, colon, path = target.partition(":")
    if colon and not (place and path):
        raise InvalidOption(f"{target!r} names no class", fix="name one: module:Error")
    if not colon:
        place, path = "builtins", target
    try:
        with redirect_stdout(sys.stderr):
            found: Any = load_module(place)
    except LimpetError as error:
        fix = f"install it here, or describe the answer: --status, --code; {error.fix}"
        raise InvalidOption(error.message, fix=fix) from error
    for name in path.split("."):
        if not hasattr(found, name):
            known = [each for each, value in vars(found).items() if _is_error(value)]
            module, dot, last = target.rpartition(".")
            fix = f"write {module}:{last}" if dot and ":" not in target else did_you_mean(name, known)
            raise InvalidOption(f"{target!r} is not an exception: {place!r} has no {name!r}", fix=fix)
        found = getattr(found, name)
    if not _is_error(found):
        what = "an instance" if isinstance(found, BaseException) else f"of type {type(found).__name__}"
        raise InvalidOption(f"{target!r} is {what}, not an exception class", fix="name a class: module:Error")
    return found  # type: ignore[no-any-return]  # checked above


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{text!r} is not a header: write 'retry-after: 12'", param_hint="--header")
        found[name.strip()] = value.strip()
    return found


def _json(text: str | None) -> Any:
    return None if text is None else read_json(text)


def _shape(told: Told, target: str | None, task: str | None) -> dict[str, Any]:
    transition = told.transition
    held = transition if isinstance(transition, Hold) else None
    return {
        "error": None if target is None else told.error,
        "task": task,
        "kind": told.kind,
        "means": told.means,
        "rule": {"by": told.by, "what": told.what or None, "text": told.why},
        "retry_after_s": None if told.retry_after_ms is None else told.retry_after_ms / 1000,
        "then": {
            "transition": type(transition).__name__,
            "text": told.then,
            "attempt_spent": told.attempt_spent,
            "key": None if held is None or task is None else held.gate,
            "trips": held is not None and held.trips,
        },
        "notes": list(told.notes),
    }


classify = command("classify", lists=True, watch=False)(classify_body)
