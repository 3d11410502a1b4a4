"""The program that looks at an app before a worker starts: its store, its tasks, what its engine warns of.

It runs in a process of its own, because the supervisor that starts it must never run a user's code. The
question comes as JSON on stdin; the answer goes to the stdout it was started with, while whatever the app
prints is sent to stderr, or nowhere if that is a log of JSON lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from limpet.cli.logs import say_line
from limpet.core.errors import LimpetError
from limpet.core.jobs.view import Finding
from limpet.runtime.log_setup import AppLogging, LogSettings, setup_logging
from limpet.stores.asking import examined
from limpet.stores.base import Store
from limpet.stores.open import missing_file
from limpet.stores.sending import tell_refusals_at_once

T = TypeVar("T")


class Patient(Protocol):
    """A way to ask the store: the name of the verb, and the call that may be made more than once."""

    async def __call__(self, verb: str, call: Callable[[], Awaitable[T]]) -> T: ...


class Question(Struct, frozen=True):
    """Which app, on which store."""

    app: str
    url: str | None = None
    namespace: str | None = None
    only_settings: bool = False  # the store is not to be opened
    wait_ms: int = 0  # how long to wait for a store that is away
    log: LogSettings = LogSettings()


class Refusal(Struct, frozen=True):
    """Why the worker cannot start."""

    code: str
    message: str
    fix: str
    exit: int


class Answer(Struct, frozen=True):
    """What a worker of this app would work with."""

    url: str = ""
    namespace: str = ""
    outbox: str = ""
    shared: bool = True
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()  # that its tasks need
    urgent: tuple[str, ...] = ()  # those of its urgent tasks
    findings: tuple[Finding, ...] = ()
    made: str | None = None  # the file of the store, if it was not there
    refusal: Refusal | None = None


async def ask(question: Question, stop: asyncio.Event) -> Answer | None:
    """Look at an app in a fresh process; None when `stop` was set before there was an answer."""
    from limpet.runtime.child_process import deaf_to_ctrl_c

    with deaf_to_ctrl_c():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
    looking = asyncio.ensure_future(process.communicate(msgspec.json.encode(question)))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not looking.done():
            return None
        said, _ = looking.result()
    finally:
        for each in (looking, stopping):
            each.cancel()
        if process.returncode is None:
            process.kill()  # it may be in the middle of an import, and holds nothing
            await process.wait()
    try:
        return msgspec.json.decode(said, type=Answer)
    except msgspec.MsgspecError:
        why = f"the app {question.app!r} ended the process that looked at it (exit {process.returncode})"
        return Answer(refusal=Refusal("invalid_option", why, "see what it printed above", 1))


async def look(question: Question) -> Answer:
    """Load the app, publish its tasks and ask its engine what it thinks of itself."""
    from limpet.cli.apps import load
    from limpet.cli.terminal import Terminal
    from limpet.runtime.settings import urgent_executors

    tell_refusals_at_once()
    terminal = Terminal(question.url, question.namespace)
    terminal.json_log = question.log.style == "json"
    app = load(terminal, question.app)
    if question.only_settings:
        outbox = app.outbox
        return Answer(url=app.url, namespace=app.namespace, outbox="" if outbox is None else outbox.place.url)
    specs = app.parts().tasks
    answer = Answer(
        url=app.url,
        namespace=app.namespace,
        shared=app.store.features.shared,
        tasks=tuple(name for name, spec in specs.items() if spec.alias_of is None),
        queues=tuple(sorted({spec.queue for spec in specs.values()})),
        executors=tuple(sorted({spec.executor for spec in specs.values()})),
        urgent=tuple(sorted(urgent_executors(specs.values()))),
    )
    if not answer.shared:
        return answer
    try:
        ask, made = _ask(app.store, question), missing_file(app.url)
        await ask("open", app.store.open)
        await ask("publish", app.publish)
        findings = await ask("check", examined(app.store).check)
        return msgspec.structs.replace(answer, findings=tuple(findings), made=made)
    finally:
        await app.close()


async def _once(verb: str, call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _ask(store: Store, question: Question) -> Patient:
    """How the store is asked: once, or again and again while it is away, as a running worker does."""
    if not question.wait_ms:
        return _once
    from limpet.core.text.duration import text_of_ms
    from limpet.runtime.patient_store import PatientStore

    setup_logging(question.log, name="limpet.worker")  # again: importing the app may have disabled it
    hint = f"the start waits up to {text_of_ms(question.wait_ms)}; with --no-wait it ends instead"
    return PatientStore(store, random.Random(), question.wait_ms, hint=hint).ask


def main() -> int:
    """Answer one question."""
    from limpet.ops.codes import meaning_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command that asks is told, and ends this one
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    logging.getLogger("limpet").addHandler(logging.NullHandler())  # the worker says what its engine warns of
    out = os.fdopen(os.dup(1), "wb")
    sys.path.insert(0, os.getcwd())
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    in_json = question.log.style == "json"
    # The worker's processes print it again, to stdout; a log of JSON lines has no place for it.
    os.dup2(os.open(os.devnull, os.O_WRONLY) if in_json else 2, 1)
    AppLogging(question.log, name="limpet.worker")
    try:
        answer = asyncio.run(look(question))
    except LimpetError as error:
        answer = Answer(refusal=Refusal(error.code, error.message, error.fix, meaning_of(error).exit))
    except Exception as error:
        if in_json:
            from limpet.core.endings.failure import traceback_of

            say_line("critical", "the app cannot be looked at", app=question.app, traceback=traceback_of(error))
        else:
            import traceback

            traceback.print_exc()
        why = f"{question.app!r} cannot be looked at: {type(error).__name__}: {error}"
        answer = Answer(refusal=Refusal("invalid_option", why, "correct the app; its traceback is above", 1))
    with out:
        out.write(msgspec.json.encode(answer))
    return 0


def worst(findings: Sequence[Finding]) -> list[Finding]:
    """What a strict start refuses."""
    return [finding for finding in findings if finding.level != "ok"]


if __name__ == "__main__":
    sys.exit(main())
