"""Names what people ask of a store: each question as a path of the HTTP API, and as a call of Operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, urlencode

from msgspec import Struct

from bench.prove.backlog import RARE
from limpet.core.records.cause import CauseKey
from limpet.ops import Operator

PAGES: Final = 20  # of 50 jobs that lie before the later page

Ask = Callable[[Operator], Awaitable[object]]


class Question(Struct, frozen=True):
    """One question: its name on the page, where HTTP answers it, and what Operator is asked."""

    title: str
    path: str
    ask: Ask
    work: str  # what the answer takes, said where it takes too long


def listed(title: str, q: str = "", *, cursor: str | None = None, dead: bool = False, work: str = "") -> Question:
    """A page of 50 jobs."""
    asked = {name: value for name, value in (("q", q), ("cursor", cursor)) if value}
    path = f"/{'dead' if dead else 'jobs'}{'?' if asked else ''}{urlencode(asked)}"

    def ask(operator: Operator) -> Awaitable[object]:
        return (operator.dead if dead else operator.jobs)(q, cursor=cursor)

    return Question(title, path, ask, work or "one index, and the 50 jobs of the page")


_BOUND: Final = "no index has this: up to 10,000 jobs are looked at, for 50 ms but 1,000 jobs at least"
_END: Final = "no index has the ends of ids: the newest 1,000,000 are compared"


async def questions(operator: Operator) -> list[Question]:
    """All of them, about jobs and causes that this store has."""
    cursor = None
    for _ in range(PAGES):
        cursor = (await operator.jobs(cursor=cursor)).cursor or cursor
    ready = (await operator.jobs("state:ready priority>5", limit=1)).jobs[0].id
    dead = (await operator.dead(limit=1)).jobs[0].id
    cause = (await operator.causes(limit=1))[0]
    return [*lists(cursor), *overviews(CauseKey(cause.cause, cause.queue, cause.task)), *singles(ready, dead)]


def lists(cursor: str | None) -> list[Question]:
    """Pages of jobs."""
    return [
        listed("jobs, first page"),
        listed(f"jobs, page {PAGES + 1}, by cursor", cursor=cursor),
        listed("jobs, `state:ready`", "state:ready"),
        listed("jobs, `state:dead`", "state:dead"),
        listed("jobs, `queue:mail`", "queue:mail"),
        listed("jobs, `task:mail.receipt`", "task:mail.receipt"),
        listed("jobs, a task of one job in 10,000", f"task:{RARE}", work=_BOUND),
        listed("jobs, `args.amount>990`", "args.amount>990", work=_BOUND),
        listed("jobs, arguments that one job in 10,000 has", "args.customer:c42", work=_BOUND),
        listed("jobs, arguments that no job has", "args.customer:unknown", work=_BOUND),
        listed("dead, first page", dead=True),
        listed("dead, `error:Timeout`", "error:Timeout", dead=True),
        listed("dead, `queue:mail args.amount>990`", "queue:mail args.amount>990", dead=True, work=_BOUND),
        listed("dead, arguments that no job has", "args.customer:unknown", dead=True, work=_BOUND),
    ]


def overviews(cause: CauseKey) -> list[Question]:
    """Counters and causes."""
    counters, hours = "counters, no scan", "counters, and the 1,000 newest dead jobs for their hours"
    named = f"/dead/causes/{cause.cause}?" + urlencode({"queue": cause.queue, "task": cause.task})
    return [
        Question("stats", "/stats", lambda operator: operator.stats(), counters),
        Question("queues", "/queues", lambda operator: operator.queues(), counters),
        Question("tasks", "/tasks", lambda operator: operator.tasks(), counters),
        Question("causes", "/dead/causes", lambda operator: operator.desk.causes(), counters),
        Question(
            "causes, with deaths by the hour",
            "/dead/causes?hours=true",
            lambda operator: operator.desk.causes(hours=True),
            hours,
        ),
        Question("one cause", named, lambda operator: operator.desk.cause(cause), hours),
    ]


def singles(ready: str, dead: str) -> list[Question]:
    """One job, and why it waits."""
    urgent = "up to 1,000 ready jobs that are more urgent are read"
    return [
        job("a ready job", ready),
        job("a dead job", dead),
        job("a ready job, by the last 8 digits of its id", ready[-8:], _END),
        explained("explain a ready job of low priority", ready, urgent),
        explained("explain a dead job", dead),
    ]


def job(title: str, id: str, work: str = "one record") -> Question:
    """Everything about one job."""
    return Question(title, f"/jobs/{quote(id)}", lambda operator: operator.job(id), work)


def explained(title: str, id: str, work: str = "one record, its gates and the workers") -> Question:
    """Why a job is not running."""
    return Question(title, f"/jobs/{quote(id)}/explain", lambda operator: operator.explain(id), work)
