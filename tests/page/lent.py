"""Agents of the shop: two hold a job each, one has asked a question, and one kind of job nobody can take."""

from __future__ import annotations

from typing import Any, Final

from tests.page.shop import HOSTILE
from tests.page.stage import Stage

QUESTION: Final = "Merge pull 420 <b>now</b>?"


def lend(stage: Stage) -> dict[str, dict[str, Any]]:
    """What each agent has claimed, by its name."""
    declare(stage, "review.pull", ["eng-backend"])
    declare(stage, "design.review", ["design"])
    pulls = [{"task": "review.pull", "args": {"pull": pull}} for pull in (418, 419, 420)]
    done(stage, "POST", "/jobs", [*pulls, {"task": "design.review", "args": {"page": "home"}}])
    held = {agent: claim(stage, agent) for agent in ("eng-1", "eng-2", "writer")}
    tell(stage, held["eng-1"], "checkpoint", value={"step": 4, "note": "tests written"})
    tell(stage, held["eng-2"], "checkpoint", value=HOSTILE[:300])
    tell(stage, held["writer"], "block", question=QUESTION)
    return held


def declare(stage: Stage, name: str, capabilities: list[str]) -> None:
    """A type that needs these."""
    done(stage, "PUT", f"/types/{name}", {"set": {"queue": "reviews", "capabilities": capabilities, "lease": 900}})


def claim(stage: Stage, agent: str) -> dict[str, Any]:
    """One job that an agent can do."""
    asked = {"worker": agent, "tasks": ["review.pull"], "capabilities": ["eng-backend", "git"]}
    job: dict[str, Any] = done(stage, "POST", "/claim", asked)["jobs"][0]
    return job


def tell(stage: Stage, job: dict[str, Any], verb: str, **said: Any) -> None:
    """What the agent says of its job."""
    done(stage, "POST", f"/leases/{job['id']}/{verb}", {"token": job["token"], **said})


def done(stage: Stage, method: str, path: str, body: Any) -> Any:
    status, answer = stage.ask(method, path, body)
    assert status < 300, answer
    return answer
