"""Commands for agents, below `agent`: claim, heartbeat, checkpoint, progress, the ends, and the answer of a person.

The older ones have short names at the top, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from limpet.cli.agent_start import prime, setup
from limpet.cli.terminal import Terminal
from limpet.cli.words import Noun, amounts, command, duration, json_value, read_json
from limpet.ops.codes import CONFLICT, NOT_FOUND, NOTHING, OK

if TYPE_CHECKING:
    from limpet.ops import LeaseAnswer


@click.group(cls=Noun)
def agent() -> None:
    """The work of an agent: claim a job, keep its lease, complete it, fail it, give it back or ask a person."""


@click.option("--agent", required=True, metavar="NAME", help="Who claims.")
@click.option("--queues", metavar="A,B", help="Only from these queues.")
@click.option("--tasks", metavar="A,B", help="Only these tasks.")
@click.option("--capability", "capabilities", multiple=True, metavar="NAME", help="What the agent can do; repeatable.")
@click.option("--lease", type=duration, help="How long without a heartbeat (the type's, else 600 s).")
@click.option("--wait", type=duration, default="0", help="Wait for a job, at most this long.")
@click.option("--key", metavar="TEXT", help="The same key returns the same jobs again.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Up to N jobs at once, as a list.")
async def claim_body(
    terminal: Terminal,
    agent: str,
    queues: str | None,
    tasks: str | None,
    capabilities: tuple[str, ...],
    lease: int | None,
    wait: int,
    key: str | None,
    most: int | None,
) -> int:
    """Lease one job: the most urgent that the agent can do. Exit 8 when there is none.

    Jobs that are claimed at once share their lease: a heartbeat for one of them renews it for all.
    """
    from limpet.core.jobs.lease import Serves
    from limpet.ops import Agents
    from limpet.ops.held_limits import held_limits, held_text

    serves = Serves(_names(queues), _names(tasks), tuple(name for given in capabilities for name in given.split(",")))
    began_s = time.monotonic()
    async with terminal.store(wait_ms=wait) as store:
        left_ms = max(0, wait - round(1000 * (time.monotonic() - began_s)))
        claimed = await Agents(store).claim(agent, serves, most=most or 1, lease_ms=lease, wait_ms=left_ms, key=key)
        now_ms = await store.now()
        held = () if claimed else await held_limits(store, now_ms)
    if not claimed:
        if terminal.machine:
            told = {"held_limits": [each.to_dict() for each in held]} if held else {}
            terminal.answer({**({"id": None} if most is None else {"jobs": []}), **told})
        terminal.say("; ".join(filter(None, ("nothing to claim", held_text(held, now_ms)))))
        return NOTHING.exit
    if not terminal.machine:
        for each in claimed:
            _show(terminal, each.to_dict())
    else:
        shapes = [each.to_dict() for each in claimed]
        terminal.answer(shapes[0] if most is None else {"jobs": shapes})
    return OK.exit


def _show(terminal: Terminal, shape: dict[str, Any]) -> None:
    import msgspec

    def json(value: object) -> str:
        return msgspec.json.encode(value).decode()

    terminal.text(f"{shape['id']}  token {shape['token']}  {shape['task']}  attempt {shape['attempt']}")
    if "description" in shape:
        terminal.text(f"  do {shape['description']}")
    terminal.text(f"  args {json(shape['args'])}")
    if "result_contract" in shape:
        terminal.text(f"  the result must fit {json(shape['result_contract'])}")
    if "checkpoint" in shape:
        terminal.text(f"  checkpoint {json(shape['checkpoint'])}")
    for note in shape["notes"]:
        terminal.text(f"  {note['kind']} {note['name']} {json(note['body'])}")
    for before in shape["failed_before"]:
        terminal.text(f"  attempt {before['attempt']} {before['outcome']}: {before['error']}: {before['message']}")


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _spent(function: Callable[..., Any]) -> Callable[..., Any]:
    """What the agent has really spent on the job."""
    words = "The actual cost; repeatable. Units: tokens, input_tokens, output_tokens, usd, cost."
    return click.option("--spent", multiple=True, metavar="UNIT=AMOUNT", help=words)(function)


def _lease(function: Callable[..., Any]) -> Callable[..., Any]:
    """The job and the token that claim answered."""
    token = click.option("--token", required=True, type=int, help="The token from claim.")
    return click.argument("id")(token(function))


@_lease
@click.option("--lease", type=duration, help="Renew it for this long from now (the type's, else 600 s).")
async def heartbeat_body(terminal: Terminal, id: str, token: int, lease: int | None) -> int:
    """Renew the lease of job ID; the answer says whether a cancel was requested."""
    from limpet.ops import Agents

    async with terminal.store() as store:
        return _answer(terminal, await Agents(store).heartbeat(id, token, lease_ms=lease))


@_lease
@click.option("--value", required=True, type=read_json, help="JSON, @FILE or - for stdin.")
async def checkpoint_body(terminal: Terminal, id: str, token: int, value: Any) -> int:
    """Keep a value with job ID: the next attempt gets it, however this one ends."""
    from limpet.ops import Agents

    async with terminal.store() as store:
        return _answer(terminal, await Agents(store).checkpoint(id, token, value))


@_lease
@click.option("--done", required=True, type=float, metavar="N", help="How much is done.")
@click.option("--total", type=float, metavar="N", help="Of how much.")
@click.option("--message", default="", metavar="TEXT", help="What is being done.")
async def progress_body(terminal: Terminal, id: str, token: int, done: float, total: float | None, message: str) -> int:
    """Say how far job ID is: `limpet job ID` and its watchers show it."""
    from limpet.ops import Agents

    async with terminal.store() as store:
        return _answer(terminal, await Agents(store).progress(id, token, done, total, message))


@_lease
@click.option("--result", type=json_value, help="JSON, @FILE or - for stdin.")
@_spent
async def complete_body(terminal: Terminal, id: str, token: int, result: bytes | None, spent: tuple[str, ...]) -> int:
    """Finish job ID."""
    from limpet.ops import Agents

    async with terminal.store() as store:
        answer = await Agents(store).complete(id, token, result, spent=amounts(spent, "--spent"))
    return _answer(terminal, answer)


@_lease
@click.option("--error", "message", required=True, metavar="TEXT", help="What went wrong.")
@click.option(
    "--class",
    "kind",
    type=click.Choice(["transient", "permanent", "rate-limited", "spent", "needs-human"]),
    default="transient",
    show_default=True,
    help="Retried later; dead now; the limit is held; no money or quota is left, so the limit is closed; "
    "a person must answer, and the error is the question.",
)
@click.option("--retry-after", type=duration, help="Retry not before this time has passed.")
@click.option("--timeout", type=duration, help="With needs-human: wait for the answer at most this long.")
@click.option("--type", "type_name", metavar="NAME", help="The type of the error, a part of its cause.")
@click.option("--traceback", type=click.File(), help="Where it happened: a file, or - for stdin.")
@_spent
async def fail_body(
    terminal: Terminal,
    id: str,
    token: int,
    message: str,
    kind: str,
    retry_after: int | None,
    timeout: int | None,
    type_name: str | None,
    traceback: TextIO | None,
    spent: tuple[str, ...],
) -> int:
    """Report that this attempt of job ID failed."""
    from limpet.ops import Agents
    from limpet.ops.agent_endings import FailKind

    async with terminal.store() as store:
        answer = await Agents(store).fail(
            id,
            token,
            message,
            kind=cast(FailKind, kind),
            retry_after_ms=retry_after,
            timeout_ms=timeout,
            type=type_name,
            traceback="" if traceback is None else traceback.read(),
            spent=amounts(spent, "--spent"),
        )
    return _answer(terminal, answer)


@_lease
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
@_spent
async def release_body(terminal: Terminal, id: str, token: int, reason: str, spent: tuple[str, ...]) -> int:
    """Give job ID back to the queue; no attempt is spent."""
    from limpet.ops import Agents

    async with terminal.store() as store:
        answer = await Agents(store).release(id, token, reason=reason, spent=amounts(spent, "--spent"))
    return _answer(terminal, answer)


@_lease
@click.option("--question", required=True, metavar="TEXT", help="What a person has to decide, or to provide.")
@click.option("--timeout", type=duration, help="Go on without an answer after this time; without it the job waits.")
@_spent
async def block_body(
    terminal: Terminal, id: str, token: int, question: str, timeout: int | None, spent: tuple[str, ...]
) -> int:
    """Ask a person about job ID: it waits for the answer, and no attempt is spent.

    Its lease and slots are free. The claim after the answer (`limpet agent answer`) reads it in the notes.
    """
    from limpet.ops import Agents

    async with terminal.store() as store:
        asked = Agents(store).block(id, token, question, timeout_ms=timeout, spent=amounts(spent, "--spent"))
        return _answer(terminal, await asked)


@click.argument("id")
@click.argument("text")
@click.option("--task", metavar="NAME", help="ID is a unique key of this task.")
async def answer_body(terminal: Terminal, id: str, text: str, task: str | None) -> int:
    """Answer with TEXT what an agent asked about job ID (`limpet approvals` lists the questions).

    The job continues. ID may be the unique end of an id, or the unique key that the job was enqueued with.
    """
    from limpet.cli.waits import tell
    from limpet.ops import Waits

    async with terminal.operator() as operator:
        waits = Waits(operator.store, operator.actor)
        return tell(terminal, await waits.answer(await waits.typed(id, task=task), text))


def _answer(terminal: Terminal, answer: LeaseAnswer) -> int:
    if terminal.machine:
        terminal.answer(answer.to_dict())
    else:
        (terminal.text if answer.answer == "done" else terminal.say)(answer.text)
    return {"done": OK, "stale": CONFLICT, "gone": NOT_FOUND}[answer.answer].exit


claim = command("claim")(claim_body)
heartbeat = command("heartbeat")(heartbeat_body)
checkpoint = command("checkpoint")(checkpoint_body)
progress = command("progress")(progress_body)
complete = command("complete")(complete_body)
fail = command("fail")(fail_body)
release = command("release")(release_body)
block = command("block")(block_body)
answer = command("answer")(answer_body)
for verb in (claim, heartbeat, checkpoint, progress, complete, fail, release, block, answer, setup, prime):
    agent.add_command(verb)
