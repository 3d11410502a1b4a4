"""Hands jobs that this worker refuses on to other code, and places those again whose code no live worker has."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from limpet.core.endings.refusal import about, code_needed, is_code, left_alone, place
from limpet.core.endings.transition import Bury, Refuse, Transition
from limpet.core.jobs.lease import Claimed, ClaimOptions, ClaimRequest, Serves, SessionView
from limpet.core.jobs.view import Control
from limpet.runtime.log import job_log
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.settings import WorkerPlan
from limpet.stores.asking import attempts_of

KIND: Final = "code"  # of the controls that name the code which refused jobs wait for
KNOWN_S: Final = 1.0  # what live workers say of their code is read again after so long
NOTED_S: Final = 3_600.0  # how often it is noted that jobs wait for some code
KEPT_MS: Final = 30 * 86_400_000  # after this long no job that waited for a code is looked for
JOBS: Final = 64  # of one code, in one claim
ROUNDS: Final = 16  # of such claims, in one look
CODES: Final = 16  # in one look
LOOKS: Final = 3  # so long a code must have gone: a worker that starts again has not


class Referral:
    """Places refused jobs by what live workers say of their code."""

    def __init__(self, plan: WorkerPlan, store: PatientStore, put: Callable[[Transition], None]) -> None:
        self._store = store
        self._session = plan.session
        self._clock_s = plan.clock_s
        self._patience_s = LOOKS * plan.settings.refer_ms / 1000
        self._put = put
        self._seq = 0
        self._live: Sequence[SessionView] = ()
        self._read_at_s = -math.inf
        self._gone: dict[str, float] = {}  # since when a code that jobs wait for is missed
        self._noted: dict[str, float] = {}  # when it was last noted that jobs wait for this code
        self.held: set[tuple[bytes, int]] = set()  # id and token of jobs that are being placed again

    async def refer(self, job: Claimed, refuse: Refuse) -> Refuse | Bury:
        """What becomes of a job that this worker refuses."""
        return await self._store.ask("refer", partial(self._place, job, refuse))

    async def look(self) -> None:
        """Place again the jobs that wait for code which has gone."""
        waited_for = await self._store.controls(KIND)
        if waited_for:
            await self._store.ask("refer", partial(self._look, waited_for))

    async def _place(self, job: Claimed, refuse: Refuse) -> Refuse | Bury:
        asked_at_s = self._clock_s()
        before = await attempts_of(self._store.store, job.id) if code_needed(job.lane) is not None else ()
        placed = place(job, refuse, before, await self._sessions(asked_at_s - KNOWN_S))
        if isinstance(placed, Bury) and self._read_at_s < asked_at_s:
            placed = place(job, refuse, before, await self._sessions(asked_at_s))  # the right worker may be new
        if isinstance(placed, Refuse) and placed.lane is not None and (code := code_needed(placed.lane)) is not None:
            await self._note(code, job.claimed_at_ms)
        return placed

    async def _sessions(self, since_s: float) -> Sequence[SessionView]:
        """Live workers, as they were not before that: many jobs may be refused at once."""
        if self._read_at_s <= since_s:
            began_s = self._clock_s()
            self._live = [session for session in await self._store.store.sessions() if about(session).signatures]
            self._read_at_s = began_s
        return self._live

    async def _note(self, code: str, now_ms: int) -> None:
        """Before the first job waits for it: a worker that finds this code gone looks for such jobs."""
        if self._noted.get(code, -math.inf) < self._clock_s() - NOTED_S:
            await self._store.store.put_control(Control(KIND, code, msgspec.json.encode({"at_ms": now_ms})))
            self._noted[code] = self._clock_s()

    async def _look(self, waited_for: Sequence[Control]) -> None:
        now_s = self._clock_s()
        live = {ability for session in await self._sessions(now_s) for ability in session.serves.capabilities}
        since_ms = await self._store.store.now() - KEPT_MS
        newest = sorted(waited_for, key=_noted_at_ms, reverse=True)
        gone = [each.name for each in newest if each.name not in live and _noted_at_ms(each) > since_ms]
        self._gone = {code: self._gone.get(code, now_s) for code in gone[:CODES]}
        abilities = tuple(sorted(ability for ability in live if not is_code(ability)))
        for code in [code for code, missed_s in self._gone.items() if now_s - missed_s >= self._patience_s]:
            for _ in range(ROUNDS):
                if await self._place_again(code, abilities) < JOBS:
                    break

    async def _place_again(self, code: str, abilities: tuple[str, ...]) -> int:
        """Take jobs that wait for this code, and hand them on at once, or bury them; how many."""
        self._seq += 1
        serves = Serves(None, None, tuple(sorted((*abilities, code))))
        options = ClaimOptions(needing=code)
        request = ClaimRequest(self._session, serves, JOBS, JOBS, self._seq, "referral", options)
        claim = await self._store.claim(request)
        keys = {(job.id, job.token) for job in claim.jobs}
        self.held |= keys
        try:
            for job in claim.jobs:
                before = await attempts_of(self._store.store, job.id)
                placed = await self._place(job, left_alone(job, before))
                job_log(
                    logging.WARNING, "no live worker has the code that the job waited for", job, then=placed.counted
                )
                self._put(placed)
        finally:
            self.held -= keys  # what was not placed is found by the audit, and handed back
        return len(claim.jobs)


def _noted_at_ms(control: Control) -> int:
    return int(msgspec.json.decode(control.value, type=dict[str, int]).get("at_ms", 0))
