"""Waits for one job and shows how it goes: a bar on a terminal, elsewhere a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from limpet.cli.terminal import Terminal, clean
from limpet.core.errors import ResultTimeout
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State

if TYPE_CHECKING:
    from limpet.core.jobs.view import JobView
    from limpet.core.records.job import JobRecord
    from limpet.core.redaction.redaction import Shown
    from limpet.stores.base import Store

    Show = Callable[[JobRecord], None]


async def result_of(terminal: Terminal, store: Store, id: bytes, wait_ms: int | None) -> msgspec.Raw:
    """The job's result as it may be shown, once it has one: what the task's own types make of it is not for a shell.

    Raises what `JobHandle.result` raises.
    """
    from limpet.client.handle import failure_of
    from limpet.client.watching import changes
    from limpet.ops.redaction import redaction_of
    from limpet.ops.select import not_stored

    redaction = await redaction_of(store)

    async def masked(view: JobView) -> Shown:
        return redaction.job(view)

    try:
        with _shown(terminal) as show:
            async with aclosing(changes(store, id, wait_ms, masked)) as found:
                async for status in found:
                    if status is not None:
                        show(status)
    except ResultTimeout as error:  # it advises a call from Python; here a command is nearer
        fix = f"the job stays in the queue; wait longer, or see why it waits: limpet explain {id_text(id)}"
        raise ResultTimeout(error.message, fix=fix) from error
    (stored,) = await store.get([id])
    if stored is None:
        raise not_stored(id)
    view = redaction.job(stored)
    if view.state is not State.succeeded:
        raise await failure_of(store, view)
    return msgspec.Raw(b"null" if view.result is None else view.result)


@contextmanager
def _shown(terminal: Terminal) -> Iterator[Show]:
    if terminal.machine:
        yield lambda status: None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield lambda status: terminal.say(", ".join(text for text in (state_text(status), far_text(status)) if text))


@contextmanager
def _bar() -> Iterator[Show]:
    """One line that is drawn again: state, bar, how far, the job's message, for how long."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),  # what jobs say is no markup
        BarColumn(bar_width=24),
        TextColumn("{task.fields[far]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=None, far="")

        def show(status: JobRecord) -> None:
            done, total = (status.progress.done, status.progress.total) if status.progress else (0.0, None)
            far = clean(far_text(status))
            bar.update(line, description=state_text(status), completed=done, total=total, far=far, refresh=True)

        yield show


def state_text(status: JobRecord) -> str:
    """The state, and what of it is not as usual."""
    words = [status.state.value]
    if status.state is State.running and status.attempt > 1:
        words.append(f"attempt {status.attempt} of {status.attempts}")
    if status.waits_for:
        words.append(f"waits for {', '.join(status.waits_for)}")
    if status.cancel_requested:
        words.append("was asked to stop")
    return ", ".join(words)


def far_text(status: JobRecord) -> str:
    """How far it says it is: "3 of 10 (30 %), reading"; empty when it says nothing."""
    progress = status.progress
    if progress is None:
        return ""
    far = f"{progress.done:,g}"
    if progress.total:
        far += f" of {progress.total:,g} ({max(0.0, min(100.0, 100 * progress.done / progress.total)):.0f} %)"
    return f"{far}, {progress.message}" if progress.message else far
