"""A team of agents (shell loops, MCP over stdio and HTTP) works off tasks that depend on each other, and is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from limpet import Limpet
from limpet.client.file_types import publish_types
from limpet.core.jobs.state import State
from limpet.core.text.duration import instant_ms
from limpet.ops import Operator
from limpet.records import JobDetail
from limpet.stores.base import Store
from tests.arch.tree import ROOT
from tests.chaos.conftest import on_every_engine
from tests.chaos.mcp_agent import LEASE_S
from tests.size import MATRIX

AGENTS, TASKS = (20, 60) if MATRIX else (6, 24)
PATIENCE_S = 100 if not MATRIX else 300
# Two failures trip the breaker at once, and it recovers while the test waits.
FLAKY = {"retry": {"attempts": 9, "base": 0.2, "cap": 1}, "breaker": {"failures": 2, "cooldown": 1, "probe_after": 1}}
WORK = """#!/bin/sh
read -r id _ token task _ attempt
fails=$(sed -n 's/.*"fails":\\([0-9]*\\).*/\\1/p')
[ "$attempt" -gt "${fails:-0}" ] || exit 75
echo '{"by": "shell"}'
"""


async def filled(app: Limpet) -> list[str]:
    """Chains of four, a sixth of all tasks that fail twice at first, and one that waits for the ends of the chains."""
    ids: list[str] = []
    ends: list[str] = []
    flaky = TASKS // 6
    for _ in range((TASKS - 1 - flaky) // 4):
        before: list[str] = []
        for _ in range(4):
            before = [(await app.enqueue("team.work", {"n": len(ids)}, after=before)).id]
            ids += before
        ends += before
    ids += [(await app.enqueue("team.flaky", {"fails": 2})).id for _ in range(flaky)]
    while len(ids) < TASKS - 1:
        ids.append((await app.enqueue("team.work", {"n": len(ids)})).id)
    return [*ids, (await app.enqueue("team.join", {}, after=ends)).id]


class Team:
    """The processes of the agents; those that end are replaced by nobody but the test."""

    def __init__(self, folder: Path, url: str) -> None:
        self.work = folder / "work.sh"
        self.work.write_text(WORK)
        self.work.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        self.env = {**kept, "LIMPET_URL": url, "PATH": path, "PYTHONPATH": str(ROOT), "WAIT": "20"}
        self.folder = folder
        self.running: list[Process] = []
        self.listens = ""

    async def serve(self) -> None:
        """The server that some of them use."""
        process = await self._start("-m", "limpet.cli", "serve", "--port", "0", "--json")
        assert process.stdout is not None
        self.listens = msgspec.json.decode(await process.stdout.readline())["listens"]

    async def agent(self, number: int, *, hangs: bool = False) -> Process:
        """One agent: every third in a shell, over stdio, over HTTP."""
        more = ["hang"] if hangs else []
        if number % 3 == 0 and not hangs:
            words = [
                str(ROOT / "examples" / "agent_loop.sh"),
                f"shell-{number}",
                str(self.work),
                "--lease",
                str(LEASE_S),
            ]
            return await self._start(*words, program="bash")
        where = "stdio" if number % 3 == 1 else f"{self.listens}/mcp"
        return await self._start("-m", "tests.chaos.mcp_agent", f"mcp-{number}", where, *more)

    async def _start(self, *words: str, program: str = sys.executable) -> Process:
        process = await asyncio.create_subprocess_exec(
            program, *words, env=self.env, cwd=self.folder, stdout=PIPE, start_new_session=True
        )
        self.running.append(process)
        return process

    async def end(self) -> None:
        """All of them, with what they started."""
        for process in self.running:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def over(operator: Operator, ids: list[str]) -> list[JobDetail]:
    """The jobs, once all have ended."""
    found = []
    for id in ids:
        await operator.wait(id, PATIENCE_S)
        found.append(await operator.job(id))
    return found


@pytest.mark.matrix("twenty processes and leases of three seconds: on two busy cores they are lost for want of time")
@on_every_engine
async def test_agents_that_are_killed_lose_no_task_and_do_none_twice(url: str, tmp_path: Path) -> None:
    app = Limpet(url)
    async with app, AsyncExitStack() as stack:
        store: Store = app.store
        await publish_types(store, {"team.work": {}, "team.flaky": FLAKY, "team.join": {}})
        ids = await filled(app)
        team = Team(tmp_path, url)
        stack.push_async_callback(team.end)
        await team.serve()
        # Two take a task each and are killed with it; others take their places.
        for number in (1, 2):
            victim = await team.agent(number, hangs=True)
            assert victim.stdout is not None
            assert (await victim.stdout.readline()).startswith(b"holds")
            os.killpg(victim.pid, signal.SIGKILL)
        for number in range(AGENTS):
            await team.agent(number)
        operator = Operator(store, "ada")
        jobs = await over(operator, ids)

        assert Counter(job.state for job in jobs) == {State.succeeded: TASKS}
        assert sum(job.lost for job in jobs) >= 2  # an agent that a starved machine holds up loses one, too
        lines = await operator.audit(limit=10_000)
        completed = Counter(line.job for line in lines if line.kind == "agent.complete")
        assert completed == dict.fromkeys(ids, 1), "each completed once"
        at = {job.id: job for job in jobs}
        for job in jobs:
            for parent in job.after:
                started, ended = job.started_at, at[parent].finished_at
                assert started is not None
                assert ended is not None
                assert instant_ms(started) >= instant_ms(ended), "order respected"
        assert (await store.count()).total(State.running) == 0
        (breaker,) = [one for one in (await operator.breakers()).breakers if one.breaker == "team.flaky"]
        assert (breaker.state, breaker.opened > 0) == ("closed", True), "it tripped, and recovered"
        by = {str(job.result["by"]).partition("-")[0] for job in jobs if isinstance(job.result, dict)}
        assert "mcp" in by
