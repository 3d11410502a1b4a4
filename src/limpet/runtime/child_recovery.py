"""Settles for a child process that died: what becomes of each job that it held, and of the processes it left."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from limpet.core.endings.transition import Lose, Release, Transition
from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Held
from limpet.runtime.child_messages import RECYCLED, STOPPED
from limpet.runtime.child_process import ChildProcess
from limpet.runtime.log import worker_log
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.process_group import gone, kill_group
from limpet.runtime.roster import Started
from limpet.runtime.settler import MOST_PER_CALL

# Settlements for a dead child must not meet the answers kept for its own, which count from 1.
FIRST_SEQ: Final = 1 << 48


class ChildRecovery:
    """Writes the ends of jobs in the name of dead children, each settlement under a number of its own."""

    def __init__(self) -> None:
        self._seq = FIRST_SEQ

    async def settle_for(self, child: ChildProcess, code: int, store: PatientStore) -> None:
        """Settle what a child that ended like this still held, and close its session."""
        session = child.session
        started = {(each.id, each.token): each for each in child.roster.started()}
        held = await store.held(session)
        if not child.roster.complete:
            started |= {
                (h.id, h.token): Started(h.id, h.token, "inside") for h in held if (h.id, h.token) not in started
            }
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        known = {(each.id, each.token): each for said in child.unwritten for each in said.transitions}
        known = child.given_up | known
        spent = {id: costs for said in child.unwritten for id, costs in said.spent.items()}
        worker_log(
            logging.ERROR if code not in (STOPPED, RECYCLED) else logging.INFO,
            "handing on the jobs of a child that ended",
            pid=child.pid,
            how=how,
            held=len(held),
            started=len(started),
            told=len(known),
        )
        for start in range(0, len(held), MOST_PER_CALL):
            batch = held[start : start + MOST_PER_CALL]
            judged = [verdict(each, started, how) for each in batch]
            told = [known.get((each.id, each.token), sentence) for each, sentence in zip(batch, judged, strict=True)]
            settle = partial(self._settle, store, session)
            try:
                await settle(told, spent)
            except StoreError:
                raise
            except Exception as error:  # what the child could not write may be what cannot be written
                worker_log(
                    logging.ERROR,
                    "the store refused a batch of ends of jobs, writing them one by one",
                    error=repr(error),
                )
                for known_end, sentence in zip(told, judged, strict=True):
                    try:
                        await settle([known_end], spent)
                    except StoreError:
                        raise
                    except Exception:
                        await settle([sentence], {})
        await store.leave(session)

    async def _settle(
        self,
        store: PatientStore,
        session: str,
        batch: Sequence[Transition],
        spent: Mapping[bytes, Mapping[str, int]],
    ) -> None:
        self._seq += 1
        costs = {each.id: spent[each.id] for each in batch if each.id in spent}
        await store.settle(session, self._seq, batch, spent=costs)


async def end_groups(child: ChildProcess) -> None:
    """End the processes in which its jobs ran: the jobs go to other workers, and must not run twice at once."""
    groups = {each.group for each in child.roster.started() if each.group}
    for group in groups:
        kill_group(group)
    for group in groups:
        if not await gone(group):
            worker_log(logging.ERROR, "a process that was killed does not end", pid=group)


def verdict(held: Held, started: dict[tuple[bytes, int], Started], how: str) -> Transition:
    """What becomes of a job that a dead child held.

    Never started: handed back unspent. Started: a suspect, for any of them may have ended the process, also from a
    process of its own; proven only when it ran inside, was lost twice before and was alone in there (D10).
    """
    found = started.get((held.id, held.token))
    if found is None:
        return Release(held.id, held.token)
    alone = held.lost >= 2 and len(started) == 1 and found.where == "inside"
    return Lose(held.id, held.token, proven=alone, reason=f"the worker process died ({how})")
