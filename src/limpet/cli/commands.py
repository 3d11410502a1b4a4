"""Lists the commands: what the top of the help shows, which module has each, and where an old name is now."""

from __future__ import annotations

from typing import Final

# section → commands of one line → its words; a line may name several
SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Run work": {
        "worker": "Run an app's tasks.",
        "enqueue": "Ask for one job, by the task's name.",
        "agent, types": "Work as an agent: claim, block; agent types.",
        "outbox": "Relay jobs from a table in your database.",
        "demo": "See it work: crashes, limits, dead letters.",
    },
    "Look": {
        "jobs, job": "List jobs that match a query; show one.",
        "explain": "Say why a job is not running.",
        "tasks": "Rate, failures, p95, options, workers.",
        "queues": "Depth, age and pauses; retention and weights.",
        "flows": "List flows; show one as a tree, cancel, retry.",
        "workers": "List live workers and agents.",
        "stats, top": "Show counters that sum up; a live screen.",
        "events, audit": "What happens, live too; who did what, and why.",
        "classify": "Say what an error means for its job, and why.",
        "doctor, alerts": "Say what is wrong, or could be; what fires.",
    },
    "Correct": {
        "cancel": "Cancel jobs by id or query.",
        "retry, rerun": "Run dead jobs again; finished ones as new.",
        "dead, operations": "Dead letters; actions on many jobs.",
        "approvals": "What jobs ask of people: list, approve, reject.",
        "signal": "Give a job the event that it waits for.",
    },
    "Control": {
        "pause, resume, drain": "Stop a queue, a task or everything; go on.",
        "limits": "Rates, ceilings, budgets: list, set, clear.",
        "breakers": "Circuit breakers: list, trip, reset.",
        "schedules": "What runs at times: list, add, change, backfill.",
        "hooks": "What is called when jobs end: list, remove.",
    },
    "Set up": {
        "migrate, completion": "Create or upgrade the store; complete words.",
        "config, redaction": "Which settings are in force; what is hidden.",
        "serve, mcp, tokens": "Answer HTTP, or MCP; say who may use it.",
        "export, import": "A queue as a folder of JSON files.",
    },
}

_OF_AGENTS: Final = ("claim", "heartbeat", "checkpoint", "progress", "complete", "fail", "release")

# module under limpet.cli → its commands
_IN: Final[dict[str, tuple[str, ...]]] = {
    "worker": ("worker",),
    "enqueue": ("enqueue",),
    "agents": ("agent", *_OF_AGENTS),
    "types": ("types",),
    "folder": ("export", "import"),
    "outbox": ("outbox",),
    "demo": ("demo",),
    "jobs": ("jobs", "job", "explain", "cancel", "retry", "rerun"),
    "queues": ("queues", "pause", "resume", "drain"),
    "retention": ("retention",),
    "tasks": ("tasks",),
    "weights": ("weights",),
    "flows": ("flows", "flow"),
    "look": ("workers", "stats", "events", "audit", "doctor"),
    "top": ("top",),
    "classify": ("classify",),
    "dead": ("dead",),
    "operations": ("operations",),
    "waits": ("approvals", "approve", "reject", "signal"),
    "gates": ("limits", "breakers"),
    "schedules": ("schedules",),
    "hooks": ("hooks",),
    "alerts": ("alerts",),
    "setup": ("migrate", "config", "completion"),
    "tokens": ("tokens",),
    "redaction": ("redaction",),
    "serve": ("serve",),
    "mcp": ("mcp",),
}
MODULES: Final = {name: module for module, names in _IN.items() for name in names}

# Short names that work at the top as well; the help lists them below their noun.
SHORT: Final = {
    **{
        name: f"agent {name}"
        for name in ("claim", "heartbeat", "checkpoint", "progress", "complete", "fail", "release")
    },
    **{name: f"approvals {name}" for name in ("approve", "reject")},
    **{name: f"queues {name}" for name in ("retention", "weights")},
    "flow": "flows",
}


def listed() -> list[str]:
    """The commands that the help at the top names, in its order."""
    return [name for lines in SECTIONS.values() for names in lines for name in names.split(", ")]
