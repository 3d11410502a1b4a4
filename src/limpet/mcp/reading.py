"""Runs what agents read beside tools: resources (a job, a cause of dead jobs, a queue), and prompts about dead jobs."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import mcp_types as types

from limpet.core.errors import InvalidOption
from limpet.mcp import words
from limpet.mcp.desk import Desk
from limpet.ops.names import UnknownName

TEMPLATES: Final = (
    types.ResourceTemplate(uri_template="limpet://job/{id}", name="job", description="A job, its attempts and errors."),
    types.ResourceTemplate(uri_template="limpet://cause/{cause}", name="cause", description="What killed dead jobs."),
    types.ResourceTemplate(
        uri_template="limpet://queue/{name}", name="queue", description="A queue's depth and pauses."
    ),
)
PROMPTS: Final = (
    types.Prompt(
        name="triage",
        description="Find what kills jobs, and say what to do about each cause.",
        arguments=[types.PromptArgument(name="queue", description="Only of this queue.", required=False)],
    ),
    types.Prompt(
        name="review",
        description="Look at one dead job, and propose: discard, fix and retry, wait and retry, or escalate.",
        arguments=[types.PromptArgument(name="id", description="The dead job.", required=True)],
    ),
)


async def read(desk: Desk, uri: str) -> str:
    """What a resource says."""
    scheme, _, rest = uri.partition("://")
    kind, _, quoted = rest.partition("/")
    name = unquote(quoted)
    desk.insist("viewer", "reading")
    if scheme == "limpet" and kind == "job":
        return words.detail_text(await desk.operator.job(name), full=True)
    if scheme == "limpet" and kind == "queue":
        return "\n".join(words.table([(await desk.operator.queue(name)).to_dict()]))
    if scheme == "limpet" and kind == "cause":
        return await _cause(desk, name)
    raise InvalidOption(
        f"{uri!r:.100} is no resource", fix="limpet://job/ID, limpet://cause/CAUSE, limpet://queue/NAME"
    )


async def _cause(desk: Desk, name: str) -> str:
    found = [one for one in await desk.operator.causes(limit=1_000) if one.cause == name or one.cause.endswith(name)]
    if not found:
        raise UnknownName(f"no dead job has the cause {name!r:.80}", fix="the tool dead lists causes")
    one = found[0]
    head = f"cause {one.cause} jobs {one.count} status {one.status} queue {words.one_line(one.queue)}"
    error = words.fenced("error", f"{one.task}: {one.error}: {one.message}")
    if one.sample is None:
        return f"{head}\n{error}"
    return f"{head}\n{error}\nsample:\n{words.detail_text(await desk.operator.job(one.sample), full=False)}"


async def prompt(desk: Desk, name: str, given: dict[str, str]) -> str:
    """What a prompt says, with the facts in it."""
    desk.insist("viewer", "a prompt")
    if name == "triage":
        causes = await desk.operator.causes(given.get("queue"), limit=10)
        rows = [{"cause": one.cause, "jobs": one.count, "status": one.status, "queue": one.queue} for one in causes]
        lines = [
            f"{line} {words.one_line(f'{one.task}: {one.error}: {one.message}')}"
            for line, one in zip(words.table(rows), causes, strict=True)
        ]
        return (
            "Jobs have died. For each cause below, say what most likely happened, whether a retry can help, and which "
            "step a person should take: discard, fix and retry, wait and retry, or escalate. Look at a sample with the "
            "tool job before you judge. Change nothing yourself.\n" + words.fenced("causes", "\n".join(lines) or "none")
        )
    if name == "review":
        if not given.get("id"):
            raise InvalidOption("the prompt review needs id", fix="give the id of a dead job")
        found = await desk.operator.job(given["id"])
        return (
            "A job has died and waits for a decision. Propose one, with the reason in a sentence: discard it, fix its "
            "arguments and retry, wait and retry, or escalate to a person. A person decides.\n"
            + words.detail_text(found, full=False)
        )
    raise InvalidOption(f"there is no prompt {name!r:.60}", fix="triage, review")
