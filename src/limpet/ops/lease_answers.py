"""Decides what an agent is told whose token holds nothing: where the job is now, and what to do next."""

from __future__ import annotations

from typing import Final

from limpet.core.errors import JobNotFound, LeaseLost
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.lease import LeaseAnswer
from limpet.ops.agent_sessions import agent_of

NEXT: Final = "drop the work and claim again"


def stale(view: JobView) -> LeaseAnswer:
    """Say who has the job now, and what to do next."""
    name = id_text(view.id)
    if view.state is State.running:
        text = f"stale lease: job {name} is now held by {agent_of(view.session or 'someone')} under another token"
    else:
        text = f"stale lease: job {name} is {view.state.value}"
    return LeaseAnswer(answer="stale", state=view.state, text=f"{text}; {NEXT}")


def gone(name: str) -> LeaseAnswer:
    """The job was finished and pruned, or it never was."""
    return LeaseAnswer(answer="gone", state=None, text=f"job {name} is no longer stored")


def insisted(answer: LeaseAnswer) -> LeaseAnswer:
    """The answer, for callers that take a lease which is not theirs for an error."""
    if answer.answer == "stale":
        raise LeaseLost(answer.text.removesuffix(f"; {NEXT}"), fix=NEXT)
    if answer.answer == "gone":
        raise JobNotFound(answer.text, fix=NEXT)
    return answer
