"""Commands about queues: queues (list, retention, weights), pause, resume, drain."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from limpet.cli.gates import told
from limpet.cli.retention import retention
from limpet.cli.terminal import Terminal, patience_ms
from limpet.cli.weights import weights
from limpet.cli.words import Listing, command, complete_queue, complete_task, duration
from limpet.core.errors import UsageError
from limpet.core.jobs.state import STATES
from limpet.core.text.duration import ago_ms, text_of_ms
from limpet.ops.codes import TIMED_OUT

if TYPE_CHECKING:
    from limpet.ops import Operator

LOOK_S = 0.2  # how often a drain is looked at while someone waits for it


@click.group(cls=Listing)
def queues() -> None:
    """Queues: how full they are, how long their finished jobs stay, how large their shares are."""


async def list_body(terminal: Terminal) -> None:
    """List queues: jobs by state, the oldest that is ready, pauses."""
    async with terminal.operator() as operator:
        found = await operator.queues()
        now_ms = operator.now_ms()
    rows = []
    for one in found:
        oldest = "" if one.oldest_ready_at is None else text_of_ms(ago_ms(one.oldest_ready_at, now_ms))
        words = ""
        if one.paused is not None:
            words = f"paused by {one.paused.by}{f': {one.paused.reason}' if one.paused.reason else ''}"
        elif one.draining:
            words = "draining"
        elif one.depth is not None:
            words = f"{'full: ' if one.waiting >= one.depth else ''}{one.depth:,} may wait"
        rows.append((one.queue, *(getattr(one, state) for state in STATES), oldest, words))
    columns = ("queue", *(state.value for state in STATES), "oldest", "note")
    terminal.table("queues", columns, rows, found)


def _gate(queue: str | None, task: str | None, everything: bool) -> str:
    if sum((queue is not None, task is not None, everything)) != 1:
        raise UsageError("say what: a queue, a task or everything", fix="QUEUE, --task NAME or --all")
    return "all" if everything else f"queue:{queue}" if queue is not None else f"task:{task}"


@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option("--task", metavar="NAME", help="A task instead of a queue.", shell_complete=complete_task)
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option("--reason", default="", metavar="TEXT", help="Why; shown by explain and kept in the audit log.")
@click.option("--new", is_flag=True, help="Allow a name that is not in use yet.")
async def pause_body(
    terminal: Terminal, queue: str | None, task: str | None, everything: bool, reason: str, new: bool
) -> None:
    """Stop claims of QUEUE, a task or everything. Running jobs continue; enqueue continues."""
    async with terminal.operator() as operator:
        changed = await operator.pause(_gate(queue, task, everything), reason=reason, new=new)
    told(terminal, changed)


@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option("--task", metavar="NAME", help="A task instead of a queue.", shell_complete=complete_task)
@click.option("--all", "everything", is_flag=True, help="The pause of everything (others stay).")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def resume_body(terminal: Terminal, queue: str | None, task: str | None, everything: bool, reason: str) -> None:
    """Undo a pause or a drain."""
    async with terminal.operator() as operator:
        changed = await operator.resume(_gate(queue, task, everything), reason=reason)
    told(terminal, changed)


@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option("--task", metavar="NAME", help="A task instead of a queue.", shell_complete=complete_task)
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option("--wait", is_flag=True, help="Wait until no job is left.")
@click.option("--timeout", type=duration, help="With --wait: give up after this time (exit 7).")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def drain_body(
    terminal: Terminal,
    queue: str | None,
    task: str | None,
    everything: bool,
    wait: bool,
    timeout: int | None,
    reason: str,
) -> int:
    """Refuse new jobs of QUEUE, a task or everything, finish the rest, then leave it paused."""
    from limpet.ops.gate_reasons import gate_words

    key = _gate(queue, task, everything)
    async with terminal.operator(wait_ms=patience_ms(timeout) if wait else 0) as operator:
        changed = await operator.drain(key, reason=reason)
        if not wait:
            told(terminal, changed)
            return 0
        left = await _drained(terminal, operator, key, timeout)
        if left:
            if terminal.machine:
                terminal.answer({"key": key, "state": "draining", "left": left})
            jobs = "1 job is" if left == 1 else f"{left:,} jobs are"
            where = "" if everything else f" of {gate_words(key)}"
            terminal.say(f"{jobs} left{where}; draining continues")
            return TIMED_OUT.exit
        paused = await operator.pause(key, reason=reason or "drained")
    told(terminal, replace(paused, state="drained"))
    return 0


async def _drained(terminal: Terminal, operator: Operator, key: str, timeout_ms: int | None) -> int:
    """Wait until nothing is left to do behind this gate; answers how many jobs are left when the time is over."""
    until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    total = 0
    with terminal.progress(f"draining {key.partition(':')[2] or 'everything'}") as progress:
        while True:
            left = await operator.left(key)
            total = max(total, left)
            if progress is not None:
                progress(total - left, total)
            if not left or (until is not None and time.monotonic() >= until):
                return left
            await asyncio.sleep(LOOK_S)


queues.add_command(command("list", lists=True)(list_body))
queues.add_command(retention)
queues.add_command(weights)
pause = command("pause")(pause_body)
resume = command("resume")(resume_body)
drain = command("drain")(drain_body)
