"""Commands with which an agent begins: setup writes its skill, prime says how the queue stands."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from limpet.cli.terminal import Terminal, clean
from limpet.cli.words import command
from limpet.core.errors import InvalidOption
from limpet.ops.codes import OK
from limpet.ops.reason import when_text

if TYPE_CHECKING:
    from limpet.core.records.prime import PrimeRecord

SKILL: Final = "SKILL.md"
NAME_CHARS: Final = 40  # of a queue, a task, a limit: an agent pays for each character


@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=".", help="Where (here).")
@click.option("--force", is_flag=True, help="Replace a file that says something else.")
async def setup_body(terminal: Terminal, folder: Path, force: bool) -> int:
    """Write SKILL.md, which tells an agent how to work on jobs, in under 800 tokens."""
    path = folder / SKILL
    _write(path, force)
    if terminal.json:
        terminal.answer({"path": str(path)})
    else:
        terminal.text(f"wrote {path}")
    return OK.exit


def _write(path: Path, force: bool) -> None:
    text = files("limpet.cli").joinpath(SKILL).read_text(encoding="utf-8")
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text and not force:
            raise InvalidOption(f"{path} is there and says something else", fix="name another --folder, or add --force")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} cannot be written: {error}", fix="name another --folder") from error


@click.option("--agent", metavar="NAME", help="Also what this agent holds, with the tokens.")
async def prime_body(terminal: Terminal, agent: str | None) -> int:
    """Say how the queue stands, for an agent that begins: in under 500 tokens."""
    from limpet.ops.agent_prime import prime

    async with terminal.operator() as operator:
        record = await prime(operator, terminal.config.namespace.value, agent)
        now_ms = operator.now_ms()
    if terminal.json:
        terminal.answer(record.to_dict())
    else:
        for line in _lines(record, now_ms):
            terminal.text(line)
    return OK.exit


def _lines(record: PrimeRecord, now_ms: int) -> list[str]:
    from limpet.core.jobs.state import STATES
    from limpet.core.text.duration import instant_ms

    counts = ", ".join(f"{getattr(record, state.value):,} {state.value}" for state in STATES)
    lines = [f"Limpet, namespace {record.namespace}: {counts}"]
    lines += [
        f"you hold {hold.id} --token {hold.token}: {_short(hold.task)}, attempt {hold.attempt}, "
        f"lease ends {when_text(instant_ms(hold.until), now_ms)}"
        for hold in record.holds
    ]
    lines += [
        f"queue {_short(queue.queue)}: {queue.ready:,} ready, {queue.running:,} running, "
        f"{queue.scheduled + queue.blocked:,} later{' (paused)' if queue.paused else ''}"
        for queue in record.queues
    ]
    if record.questions:
        lines.append(f"{record.questions:,} jobs wait for a person: limpet approvals")
    lines += [f"breaker {_short(each.breaker)} is {each.state}" for each in record.breakers]
    lines += [
        f"limit {_short(each.limit)} is held until {when_text(instant_ms(each.until), now_ms)}"
        for each in record.limits
    ]
    if record.dead:
        lines.append("dead jobs wait for a person: limpet dead causes")
    name = record.agent or "NAME"
    lines.append(f"next: limpet agent claim --agent {_short(name)} --wait 60 --json (exit 8: nothing to do)")
    return lines


def _short(name: str) -> str:
    name = clean(name)
    return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"


setup = command("setup")(setup_body)
prime = command("prime")(prime_body)
