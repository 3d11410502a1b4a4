"""Decides which ends of jobs a hook is for, and what its job is told."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.core.errors import InvalidTask
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.state import FINISHED, STATES, State
from limpet.core.jobs.view import Control

KIND: Final = "hook"
QUEUE: Final = "limpet.hooks"  # the jobs of hooks, and only they: jobs of this queue have no hooks themselves

_encode = msgspec.json.Encoder().encode


class Ending(Struct, frozen=True, omit_defaults=True):
    """How a job ended. It stays true when the job is retried, or is gone, before its hook runs."""

    job: str
    task: str
    queue: str
    priority: int
    state: State
    attempt: int
    enqueued_at_ms: int
    at_ms: int
    tenant: str | None = None
    reason: str = ""
    error_type: str = ""


class Hook(Struct, frozen=True, omit_defaults=True):
    """A hook as it is published: each end that it is for makes a job of its lane and policy, in the same step."""

    lane: Lane
    policy: Policy = Policy()
    states: tuple[State, ...] = ()  # without any it was removed
    tasks: tuple[str, ...] = ()  # without any: of all tasks
    queues: tuple[str, ...] = ()  # without any: of all queues

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.lane.task

    def is_for(self, state: State, lane: Lane) -> bool:
        """Whether a job of `lane` that ends in this state makes a job of this hook."""
        return (
            state in self.states
            and lane.queue != QUEUE
            and (not self.tasks or lane.task in self.tasks)
            and (not self.queues or lane.queue in self.queues)
        )

    def job(self, ending: Ending, id: bytes) -> Job:
        """The job that runs it after this end."""
        return Job(id, self.lane, self.policy, _encode({"ending": ending}))

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self, order="deterministic"))


def read_hook(value: bytes) -> Hook | None:
    """The hook in a stored record; None when another release wrote one that cannot be read here."""
    try:
        return msgspec.json.decode(value, type=Hook)
    except msgspec.MsgspecError:
        return None


def hook_id(hook: str, job: bytes, token: int, at_ms: int) -> bytes:
    """The id of the job that a hook gets after one end of `job`: told twice, that end has the same.

    An end is that of a lease (`token`; 0: the job waited) at an instant. Ids begin with it, as all ids do: hooks run in
    the order of the ends.
    """
    said = b"%b%d\0%b" % (job, token, hook.encode())
    return at_ms.to_bytes(6, "big") + hashlib.sha1(said, usedforsecurity=False).digest()[:10]


def states_said(said: Iterable[State | str]) -> tuple[State, ...]:
    """The states of `on_finished(states=...)`: of those in which a job has ended."""
    words: list[Any] = [said] if isinstance(said, str) or not isinstance(said, Iterable) else list(said)
    for word in words:
        if not isinstance(word, str) or word not in FINISHED:
            raise InvalidTask(
                f"states must be some of {_listed(FINISHED)}, got {word!r}",
                fix='name the ends that it is for: states=["succeeded", "cancelled"]',
            )
    if not words:
        raise InvalidTask("states names no state", fix="leave it out: it is called for every end then")
    return tuple(state for state in STATES if state in words)


def _listed(states: Collection[State]) -> str:
    return ", ".join(state for state in STATES if state in states)
