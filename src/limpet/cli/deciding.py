"""Carries out what a person decides about one cause: says what will be done, asks for a reason, does it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.cli.bulk import jobs_text, show_edit, tell
from limpet.cli.causes import said_text, show_cause, time_of
from limpet.cli.prompt import agreed, ask
from limpet.cli.terminal import Terminal, clean
from limpet.core.errors import JobNotFound

if TYPE_CHECKING:
    from limpet.core.records.bulk import BulkReport
    from limpet.core.records.cause import CauseRecord
    from limpet.core.records.job import JobDetail
    from limpet.ops import Operator

_ARGS: Final = 12  # lines of a sample's arguments
_FRAMES: Final = 8  # last lines of its traceback: where it died
_TRIED: Final = 3  # retried samples whose state is shown

Act = Callable[..., Awaitable["BulkReport"]]


class Back(Exception):
    """The person takes a decision back before it is carried out."""


class Deciding:
    """One cause in front of a person. Each decision answers True when the next cause is up."""

    def __init__(self, terminal: Terminal, operator: Operator, cause: CauseRecord, decided: Counter[str]) -> None:
        self.terminal, self.operator, self.cause, self.decided = terminal, operator, cause, decided
        self.stale = False  # the cause or the sample is not as it was shown
        self._sample: JobDetail
        self._tried: list[str] = []

    async def look(self) -> CauseRecord | None:
        """Show the cause with one of its jobs, as it is now; None when none of its jobs is dead."""
        from limpet.ops.causes import jobs_of
        from limpet.ops.names import UnknownName

        self.stale = False
        for id in self._tried[-_TRIED:]:
            await self._show_tried(id)
        newest = (await self.operator.jobs(jobs_of(self.cause.key, 1))).jobs
        try:
            self.cause = await self.operator.desk.cause(self.cause.key)
            self._sample = await self.operator.job(newest[0].id if newest else "")
        except (UnknownName, JobNotFound):
            return None
        show_cause(self.terminal, self.cause, self.operator.now_ms())
        self._show_sample()
        return self.cause

    # -- decisions about jobs

    async def retry_sample(self) -> bool:
        """Run one job again, and stay: the next look says what became of it."""
        if await self._act(self._retry([self._sample.id]), f"retry job {self._sample.id}"):
            self._tried.append(self._sample.id)
        return False

    async def retry_all(self) -> bool:
        """Run all dead jobs of the cause again."""
        from limpet.ops.causes import jobs_of

        planned = await self.operator.retry(jobs_of(self.cause.key), dry_run=True)
        words = f"retry {jobs_text(planned.matched)}"
        return await self._act(self._retry(jobs_of(self.cause.key)), words, sure=True, many=True)

    async def edit_sample(self) -> bool:
        """Run one job again with other arguments, which are typed in an editor."""
        from limpet.cli.edit import edited

        id, operator = self._sample.id, self.operator

        async def refuse_unfit(**edit: Any) -> None:
            await operator.retry([id], dry_run=True, **edit)

        args, patch = await edited(await operator.job(id), refuse_unfit)
        planned = await operator.retry([id], args=args, patch=patch, dry_run=True)
        self.terminal.text("the job will run with these arguments:")
        show_edit(self.terminal, planned.samples[0], planned.edits[0])
        if await self._act(self._retry([id], args=args, patch=patch), f"retry job {id} so", sure=True, verb="edit"):
            self._tried.append(id)
        return False

    async def discard_sample(self) -> bool:
        """Remove one job for good."""
        await self._act(self._discard([self._sample.id]), f"discard job {self._sample.id} for good", sure=True)
        return False

    async def discard_all(self) -> bool:
        """Remove the jobs that are dead now for good, and none that dies while the person thinks."""
        from limpet.core.jobs.ids import id_text
        from limpet.ops.causes import jobs_of
        from limpet.ops.select import walk

        pages = walk(self.operator.store, jobs_of(self.cause.key))
        ids = [id_text(view.id) async for page in pages for view in page]
        return await self._act(self._discard(ids), f"discard {jobs_text(len(ids))} for good", sure=True, many=True)

    def _retry(self, which: Any, **how: Any) -> Act:
        async def act(**more: Any) -> BulkReport:
            return await self.operator.retry(which, **how, **more)

        return act

    def _discard(self, ids: Sequence[str]) -> Act:
        async def act(**more: Any) -> BulkReport:
            return await self.operator.discard(ids, **more)

        return act

    async def _act(self, act: Act, words: str, *, sure: bool = False, many: bool = False, verb: str = "") -> bool:
        """Say it, ask for the reason and, where it may destroy or is much, once more; then do it."""
        self.terminal.text(f"this will {words}")
        reason = await self._reason()
        if sure and not await agreed(f"{words}?"):
            raise Back
        self.stale = True
        with self.terminal.progress("working") if many else nullcontext() as progress:
            report = await act(reason=reason, progress=progress)
        tell(self.terminal, report)
        self.decided[verb or report.action] += 1
        return report.done > 0

    # -- what is said of the cause

    async def acknowledge(self) -> bool:
        """Take care of it."""
        return await self._say("acknowledge")

    async def snooze(self) -> bool:
        """Leave it alone for a time."""
        return await self._say("snooze", time_of(await _typed("for how long (2h), or until when: ")))

    async def resolve(self) -> bool:
        """It is mended."""
        return await self._say("resolve")

    async def assign(self) -> bool:
        """Say whose it is, and stay."""
        name = await _typed("to whose name, address or team (- for none): ")
        await self._say("assign", None if name == "-" else name)
        return False

    async def note(self) -> bool:
        """Keep a note with it, and stay."""
        await self._say("note", await _typed("note: "))
        return False

    async def escalate(self) -> bool:
        """Hand it over."""
        return await self._say("escalate", await _typed("to whose name, address or team: "))

    async def _say(self, verb: str, *given: Any) -> bool:
        """Say what it would be, ask for the reason, say it; refused if another person was faster."""
        say = getattr(self.operator.desk, verb)
        planned = await say(self.cause.key, *given, version=self.cause.version, dry_run=True)
        self.terminal.long_text(said_text(planned, planned=True))
        reason = await self._reason()
        self.cause = await say(self.cause.key, *given, version=self.cause.version, reason=reason)
        self.terminal.long_text(said_text(self.cause))
        self.decided[verb] += 1
        return True

    async def _reason(self) -> str:
        reason = await ask("reason (Enter for none, Ctrl-D to go back): ")
        if reason is None:
            raise Back
        return reason

    # -- what is shown

    async def _show_tried(self, id: str) -> None:
        try:
            job = await self.operator.job(id)
        except JobNotFound:
            self.terminal.text(f"  tried      {id}  no longer stored")
            return
        self.terminal.text(f"  tried      {id}  {job.state}")

    def _show_sample(self) -> None:
        job = self._sample
        self.terminal.text(f"  sample     {job.id}  attempt {job.attempt}/{job.attempts}")
        args = msgspec.json.format(msgspec.json.encode(job.args), indent=2).decode().splitlines()
        self._lines(args[:_ARGS])
        frames = ((job.history[-1].traceback or "") if job.history else "").rstrip().splitlines()
        self._lines(frames[-_FRAMES:])
        if len(args) > _ARGS or len(frames) > _FRAMES:
            self.terminal.text(f"    … all of it: limpet dead show {job.id} --full")

    def _lines(self, lines: Sequence[str]) -> None:
        """Lines of other programs, broken where the screen ends."""
        columns = shutil.get_terminal_size().columns
        for line in lines:
            text = clean(line)
            indent = " " * (len(text) - len(text.lstrip()) + 4)
            for part in wrap(text.strip(), columns, initial_indent=indent, subsequent_indent=indent + "  "):
                self.terminal.text(part)


async def _typed(question: str) -> str:
    """A word that a decision needs; without one it is taken back."""
    answer = await ask(question)
    if not answer:
        raise Back
    return answer
