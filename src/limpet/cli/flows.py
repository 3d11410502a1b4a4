"""Commands about flows: flows (list, show, cancel, retry), flow (show, cancel, retry)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.bulk import run_action
from limpet.cli.terminal import Terminal, patience_ms
from limpet.cli.words import Listing, Showing, bulk_options, command, duration
from limpet.core.jobs.state import STATES, State
from limpet.core.text.duration import ago_ms, text_of_ms
from limpet.ops.codes import OK, REFUSED, TIMED_OUT

if TYPE_CHECKING:
    from limpet.ops import Flows

LOOK_S: Final = 0.2  # how often a flow is looked at while someone waits for it


@asynccontextmanager
async def _flows(terminal: Terminal, *, wait_ms: int = 0) -> AsyncIterator[Flows]:
    from limpet.ops import Flows

    async with terminal.store(wait_ms=wait_ms) as store:
        yield Flows(store, terminal.actor)


@click.group(cls=Listing)
def flows() -> None:
    """Jobs that wait for each other and are shown as one."""


@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000), help="Flows per page.")
@click.option("--before", metavar="ID", help="Only flows older than this one: where the last page ended.")
async def list_body(terminal: Terminal, limit: int, before: str | None) -> None:
    """List flows, newest first: the progress of each, and its jobs by state."""
    from limpet.core.records.flow import FlowRecord

    async with _flows(terminal) as flows:
        lines = await flows.newest(limit, None if before is None else await flows.resolve(before))
    now_ms = time.time_ns() // 1_000_000
    found = [FlowRecord.of(line) for line in lines]
    rows = [
        (
            one.id,
            one.name,
            one.state,
            f"{one.done:,}/{one.total:,}",
            *(one.counts.get(state, 0) or "" for state in STATES),
            text_of_ms(ago_ms(one.enqueued_at, now_ms)),
        )
        for one in found
    ]
    columns = ("id", "name", "state", "done", *(state.value for state in STATES), "age")
    terminal.table("flows", columns, rows, found)
    if len(lines) == limit and not terminal.machine:
        terminal.say(f"more: --before {found[-1].id}")


@click.group(cls=Showing)
def flow() -> None:
    """One flow: its jobs as a tree. Or cancel it, or run parts of it again."""


@click.argument("id")
@click.option("--all", "everything", is_flag=True, help="Show every node, also many equal ones.")
@click.option("--wait", is_flag=True, help="Wait until all its jobs have finished (exit 1 unless they succeeded).")
@click.option("--timeout", type=duration, help="With --wait: give up after this time (exit 7).")
async def show_body(terminal: Terminal, id: str, everything: bool, wait: bool, timeout: int | None) -> int:
    """Draw flow ID (or the unique end of one, or a job of it) as a tree, with states, durations and reasons."""
    code = OK.exit
    async with _flows(terminal, wait_ms=patience_ms(timeout) if wait else 0) as flows:
        raw = await flows.resolve(id)
        if wait:
            code = await _finished(terminal, flows, raw, timeout)
        whole = await flows.status(raw)
    if terminal.machine:
        terminal.answer(whole)
    else:
        _draw(terminal, whole.to_dict(), everything=everything)
    return code


async def _finished(terminal: Terminal, flows: Flows, id: bytes, timeout_ms: int | None) -> int:
    until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    with terminal.progress("waiting") as progress:
        while True:
            line = await flows.line(id)
            if progress is not None:
                progress(line.done, line.total)
            if line.done == line.total:
                return OK.exit if line.state is State.succeeded else REFUSED.exit
            if until is not None and time.monotonic() >= until:
                return TIMED_OUT.exit
            await asyncio.sleep(LOOK_S)


def _draw(terminal: Terminal, shape: dict[str, Any], *, everything: bool) -> None:
    from limpet.cli.tree import drawn, show

    counts = ", ".join(f"{count:,} {state}" for state, count in shape["counts"].items())
    terminal.text(f"flow {shape['id']}")
    far = f"{shape['done']:,} of {shape['total']:,} done"
    terminal.text(f"{shape['name'] or 'flow'}: {shape['state']}, {far} ({counts})")
    show(list(drawn(shape["nodes"], everything=everything)))
    if shape["past"]:
        runs = "1 earlier run" if len(shape["past"]) == 1 else f"{len(shape['past']):,} earlier runs"
        terminal.text(f"{runs} of nodes that were run again: --json lists them")


@click.argument("id")
@click.option("--force", is_flag=True, help="Take running jobs away from their workers.")
@bulk_options
async def cancel_body(terminal: Terminal, id: str, force: bool, dry_run: bool, yes: bool, reason: str) -> int:
    """Cancel every job of flow ID that has not finished; running ones are asked to stop."""
    async with _flows(terminal) as flows:
        raw = await flows.resolve(id)

        async def act(**how: Any) -> Any:
            return await flows.cancel(raw, reason=reason, force=force, **how)

        return await run_action(terminal, act, (), dry_run=dry_run, yes=yes)


@click.argument("id")
@click.option("--from", "from_", multiple=True, metavar="NODE", help="This node and all its dependents; repeatable.")
@click.option("--force", is_flag=True, help="With --from: take running jobs away from their workers.")
@bulk_options
async def retry_body(
    terminal: Terminal, id: str, from_: tuple[str, ...], force: bool, dry_run: bool, yes: bool, reason: str
) -> int:
    """Run the dead jobs of flow ID again, with the jobs that their death cancelled.

    With --from, NODE and all its dependents run again, in any state, as new jobs of the same flow, with the results
    of the other nodes.
    """
    async with _flows(terminal) as flows:
        raw = await flows.resolve(id)

        async def act(**how: Any) -> Any:
            return await flows.retry(raw, reason=reason, from_=from_, force=force, **how)

        return await run_action(terminal, act, (), dry_run=dry_run, yes=yes)


flows.add_command(command("list", lists=True)(list_body))
for verb in (command("show")(show_body), command("cancel")(cancel_body), command("retry")(retry_body)):
    flows.add_command(verb)
    flow.add_command(verb)
