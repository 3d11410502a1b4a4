"""Makes jobs for tests from flat options, so that a test names only what matters to it."""

from __future__ import annotations

from typing import TypedDict

from limpet.core.jobs.job import IfParentFails, Job, Lane, Policy, Unique


class JobOptions(TypedDict, total=False):
    """Fields of Lane and of Job by their own names."""

    queue: str
    task: str
    priority: int
    tenant: str | None
    needs: tuple[str, ...]
    limits: tuple[str, ...]
    keys: tuple[str, ...]
    breaker: str | None
    scope: str | None
    breaker_key: str | None
    id: bytes
    policy: Policy
    args: bytes
    delay_ms: int
    due_at_ms: int | None
    expires_ms: int | None
    unique: Unique | None
    after: tuple[bytes, ...]
    if_parent_fails: IfParentFails
    cost: int
    tags: tuple[str, ...]
    meta: bytes
    flow: bytes | None
    costs: dict[str, int]


PLAIN = Policy()


def make_job(id: bytes, options: JobOptions) -> Job:
    """A job of queue "default" and task "work" unless told otherwise."""
    lane = Lane(
        queue=options.get("queue", "default"),
        task=options.get("task", "work"),
        priority=options.get("priority", 5),
        tenant=options.get("tenant"),
        needs=options.get("needs", ()),
        limits=options.get("limits", ()),
        keys=options.get("keys", ()),
        breaker=options.get("breaker"),
        scope=options.get("scope"),
        breaker_key=options.get("breaker_key"),
    )
    return Job(
        id=options.get("id", id),
        lane=lane,
        policy=options.get("policy", PLAIN),
        args=options.get("args", b"{}"),
        delay_ms=options.get("delay_ms", 0),
        due_at_ms=options.get("due_at_ms"),
        expires_ms=options.get("expires_ms"),
        unique=options.get("unique"),
        after=options.get("after", ()),
        if_parent_fails=options.get("if_parent_fails", "cancel"),
        cost=options.get("cost", 1),
        tags=options.get("tags", ()),
        meta=options.get("meta", b""),
        flow=options.get("flow"),
        costs=options.get("costs", {}),
    )
