"""Decides which answers lead where: the id in a list, or of what was just made, is the parameter of other routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from limpet.server.route import Route


class Lead(NamedTuple):
    """Where in an answer a name stands, and the paths that take it."""

    pointer: str
    begins: str  # of the paths that take it, up to the parameter


_JOB: Final = "/jobs/{id}"

# method and path → what its answer leads to
LEADS: Final[dict[tuple[str, str], Lead]] = {
    ("POST", "/jobs"): Lead("/jobs/0/id", _JOB),
    ("GET", "/jobs"): Lead("/jobs/0/id", _JOB),
    ("GET", "/dead"): Lead("/jobs/0/id", _JOB),
    ("GET", "/approvals"): Lead("/approvals/0/id", _JOB),
    ("POST", "/schedules/{name}/run"): Lead("/id", _JOB),
    ("GET", "/dead/causes"): Lead("/causes/0/cause", "/dead/causes/{cause}"),
    ("GET", "/queues"): Lead("/queues/0/queue", "/queues/{name}"),
    ("GET", "/tasks"): Lead("/tasks/0/task", "/tasks/{name}"),
    ("GET", "/flows"): Lead("/flows/0/id", "/flows/{id}"),
    ("GET", "/schedules"): Lead("/schedules/0/name", "/schedules/{name}"),
    ("POST", "/schedules"): Lead("/name", "/schedules/{name}"),
    ("GET", "/limits"): Lead("/limits/0/key", "/limits/{key}"),
    ("GET", "/breakers"): Lead("/breakers/0/breaker", "/breakers/{key}"),
    ("GET", "/hooks"): Lead("/hooks/0/hook", "/hooks/{name}"),
    ("GET", "/retention"): Lead("/retention/0/queue", "/retention/{queue}"),
    ("GET", "/weights"): Lead("/weights/0/name", "/weights/{name}"),
    ("GET", "/operations"): Lead("/operations/0/id", "/operations/{id}"),
    ("POST", "/operations"): Lead("/id", "/operations/{id}"),
    ("POST", "/tokens"): Lead("/name", "/tokens/{name}"),
}


def links_of(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """The links of one route's answer."""
    lead = LEADS.get((route.method, route.path))
    if lead is None:
        return {}
    name = lead.begins.partition("{")[2].rstrip("}")
    return {
        f"{each.noun}_{each.handler.__name__}": {
            "operationId": f"{each.noun}_{each.handler.__name__}",
            "parameters": {name: f"$response.body#{lead.pointer}"},
        }
        for each in routes
        if each.path == lead.begins or each.path.startswith(f"{lead.begins}/")
    }
