"""Five agents share one list of tasks: capabilities, dependencies, a breaker, and a review of what failed for good.

    python examples/team.py

The agents here are functions; real ones claim by `limpet agent claim` (examples/agent_loop.sh), over MCP or HTTP.
The security scanner is broken at first: its breaker cuts it off, and closes by a probe.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from limpet import Limpet
from limpet.client.file_types import publish_types
from limpet.core.jobs.lease import Serves
from limpet.ops import Agents, Operator
from limpet.records import ClaimRecord

TYPES: dict[str, dict[str, Any]] = {
    "eng.api": {"capabilities": ["eng-backend"], "result": {"required": ["decision"]}},
    "eng.page": {"capabilities": ["eng-frontend"]},
    "ops.scan": {
        "capabilities": ["ops-security"],
        "retry": {"attempts": 9, "base": 0.05, "cap": 0.1},
        "breaker": {"failures": 3, "cooldown": 0.5, "probe_after": 0.5},
    },
    "biz.copy": {"capabilities": ["biz-words"], "retry": 1},
    "ops.release": {"capabilities": ["ops-release"]},
}
TEAM = {
    "api": "eng-backend",
    "page": "eng-frontend",
    "scan": "ops-security",
    "copy": "biz-words",
    "ship": "ops-release",
}
scanner = {"broken": 4}  # that many scans fail before it is mended


async def work(agents: Agents, job: ClaimRecord) -> None:
    """What an agent does with a job that it has claimed."""
    if job.task == "ops.scan" and scanner["broken"]:
        scanner["broken"] -= 1
        await agents.fail(job.id, job.token, "the scanner does not answer", type="ScannerDown")
    elif job.task == "biz.copy" and "wording" not in job.args:
        await agents.fail(job.id, job.token, "no wording was given", kind="permanent")
    else:
        await agents.complete(job.id, job.token, b'{"decision": "ship", "by": "%s"}' % job.task.encode())


async def agent(app: Limpet, name: str, capability: str) -> None:
    """The loop of one agent, until it is cancelled."""
    agents = Agents(app.store)
    while True:
        for job in await agents.claim(name, Serves(capabilities=(capability,)), wait_ms=60_000):
            await work(agents, job)


async def main(app: Limpet) -> None:
    await publish_types(app.store, TYPES)
    operator = Operator(app.store, "ada")
    api = await app.enqueue("eng.api", {"ticket": "T-1"}, unique=True)
    again = await app.enqueue("eng.api", {"ticket": "T-1"}, unique=True)
    print(f"the same ticket is the same job: {again.existing}")
    page = await app.enqueue("eng.page", {"ticket": "T-1"}, after=[api])
    scans = [await app.enqueue("ops.scan", {"part": part}, after=[api]) for part in ("auth", "files", "mail")]
    copy = await app.enqueue("biz.copy", {"page": "pricing"})
    ship = await app.enqueue("ops.release", {"version": 2}, after=[page, *scans], priority="high")
    beta = await app.enqueue("eng.page", {"ticket": "T-2"}, after=[ship])
    await app.enqueue("eng.api", {"ticket": "T-3"}, after=[beta])
    print(f"cancelled with what depends on it: {(await operator.cancel([beta.id], reason='no beta')).done + 1}")

    team = [asyncio.create_task(agent(app, name, able)) for name, able in TEAM.items()]
    result = await ship.result(timeout=60)
    print(f"released by {result['by']}, after {len(scans)} scans")
    breaker = await operator.breaker("ops.scan")
    print(f"the breaker of ops.scan opened {breaker.opened} time(s), and is {breaker.state}")

    await operator.wait(copy.id, 60)
    (cause,) = await operator.causes()
    print(f"{cause.count} dead: {cause.message}")
    await operator.retry([copy.id], patch={"wording": "Simple prices"}, reason="the wording was missing")
    await copy.result(timeout=60)
    (line,) = [line for line in await operator.audit(limit=1_000) if line.kind == "job.retry"]
    print(f"{line.actor} retried it: {line.reason}")
    for each in team:
        each.cancel()
    await asyncio.gather(*team, return_exceptions=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        app = Limpet(f"sqlite:///{Path(folder) / 'team.db'}")

        async def whole() -> None:
            async with app:
                await main(app)

        asyncio.run(whole())
