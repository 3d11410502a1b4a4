"""The program that looks at an app before a worker starts: its store, its tasks, what its engine warns of.

It runs in a process of its own, because the supervisor that starts it must never run a user's code. The
question comes as JSON on stdin; the answer goes to the stdout it was started with, while whatever the app
prints is sent to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from limpet.core.errors import LimpetError
from limpet.core.view import Finding


class Question(Struct, frozen=True):
    """Which app, on which store."""

    app: str
    url: str | None = None
    namespace: str | None = None
    only_settings: bool = False  # the store is not to be opened


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
    refusal: Refusal | None = None


async def ask(app: str, url: str | None, namespace: str | None, *, only_settings: bool = False) -> Answer:
    """Look at an app in a fresh process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(msgspec.json.encode(Question(app, url, namespace, only_settings)))
    try:
        return msgspec.json.decode(said, type=Answer)
    except msgspec.MsgspecError:
        why = f"the app {app!r} ended the process that looked at it (exit {process.returncode})"
        return Answer(refusal=Refusal("invalid_option", why, "see what it printed above", 1))


async def look(question: Question) -> Answer:
    """Load the app, publish its tasks and ask its engine what it thinks of itself."""
    from limpet.cli.apps import load
    from limpet.cli.terminal import Terminal
    from limpet.runtime.settings import urgent_executors

    app = load(Terminal(question.url, question.namespace), question.app)
    if question.only_settings:
        outbox = app.outbox
        return Answer(url=app.url, namespace=app.namespace, outbox="" if outbox is None else outbox.place.url)
    specs = app.parts().tasks
    answer = Answer(
        url=app.url,
        namespace=app.namespace,
        shared=app.store.features.shared,
        tasks=tuple(specs),
        queues=tuple(sorted({spec.queue for spec in specs.values()})),
        executors=tuple(sorted({spec.executor for spec in specs.values()})),
        urgent=tuple(sorted(urgent_executors(specs.values()))),
    )
    if not answer.shared:
        return answer
    async with app:
        await app.publish()
        return msgspec.structs.replace(answer, findings=tuple(await app.store.check()))


def main() -> int:
    """Answer one question."""
    from limpet.ops.codes import meaning_of

    logging.getLogger("limpet").addHandler(logging.NullHandler())  # the worker says what its engine warns of
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    try:
        answer = asyncio.run(look(question))
    except LimpetError as error:
        answer = Answer(refusal=Refusal(error.code, error.message, error.fix, meaning_of(error).exit))
    except Exception as error:
        import traceback

        traceback.print_exc()
        why = f"{question.app!r} cannot be imported: {type(error).__name__}: {error}"
        answer = Answer(refusal=Refusal("invalid_option", why, "correct the app; its traceback is above", 1))
    with out:
        out.write(msgspec.json.encode(answer))
    return 0


def worst(findings: Sequence[Finding]) -> list[Finding]:
    """What a strict start refuses."""
    return [finding for finding in findings if finding.level != "ok"]


if __name__ == "__main__":
    sys.exit(main())
