"""Takes a folder of JSON files over: each entry becomes a job once, however often the folder is imported."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from limpet.core.endings.failure import cause_of
from limpet.core.endings.retry import Retry
from limpet.core.endings.transition import Bury, Drop, Failure, Succeed, Transition
from limpet.core.errors import InvalidOption, UsageError
from limpet.core.folder.entry import FINISHED, Entry
from limpet.core.folder.salvage import entries_in
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job, Lane
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.core.jobs.state import FINISHED as ENDED
from limpet.core.jobs.state import State
from limpet.core.records.folder import FolderImport, FolderProblem
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.task import PLAIN, TaskSpec, build_job
from limpet.core.text.storable import storable
from limpet.ops.bulk import Decision
from limpet.ops.declared import declared_tasks
from limpet.ops.folder_files import REJECTED, put, text_of
from limpet.ops.names import UnknownName
from limpet.stores.base import Store

CHUNK: Final = 500  # jobs of one call: each with arguments of up to 256 KiB, some are large
IMPORTER: Final = "limpet-import"  # the capability that only the importer has: no agent takes a job that has ended
LEASE_MS: Final = 60_000
# The order in which entries of one id count: an entry that has ended may still lie among those that wait.
ORDER: Final = (*FINISHED, "in-progress", "pending")


async def import_folder(store: Store, folder: Path, actor: str) -> FolderImport:
    """Store the entries as jobs. Damaged files and entries are told, and kept in rejected.json."""
    found = _Found(folder)
    for name in ORDER:
        found.read(name)
    declared = {task.name: task.spec() for task in await declared_tasks(store)}
    importing = _Importing(store, found, declared)
    await importing.finished()
    await importing.waiting()
    if found.rejected:
        _keep_rejected(folder, found.rejected)
    report = FolderImport(
        stored=dict(importing.stored),
        existing=importing.existing,
        problems=tuple(found.problems),
        refused=len(found.rejected),
    )
    decision = Decision("folder.import", actor, "", {"folder": str(folder), "stored": dict(importing.stored)})
    await store.append([decision.entry(await store.now())])
    return report


class _Found:
    """The entries of a folder, and what is wrong with it."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UnknownName(f"{folder} is not a folder", fix="name the folder that holds pending.json")
        self._folder = folder
        self.entries: dict[str, tuple[str, Entry]] = {}  # by name: its file, and what it says
        self.problems: list[FolderProblem] = []
        self.rejected: list[dict[str, Any]] = []

    def read(self, file: str) -> None:
        """The entries of one file."""
        text = text_of(self._folder, file)
        if text is None:
            self.tell(file, None, "there is no such file")
            return
        entries, wrong = entries_in(text)
        if wrong:
            self.tell(file, None, wrong)
            self.rejected.append({"file": file, "why": wrong, "text": text[:100_000]})
        for raw in entries:
            try:
                entry = Entry(raw)
                known = self.entries.setdefault(entry.name, (file, entry))
            except InvalidOption as error:
                self.reject(file, raw, str(error))
                continue
            if known[1] is not entry:
                self.tell(file, entry.name, f"it stands in {known[0]}.json, too, which counts")

    def tell(self, file: str, entry: str | None, text: str) -> None:
        """Something that a person should know."""
        self.problems.append(FolderProblem(file=f"{file}.json", entry=entry, text=text))

    def reject(self, file: str, raw: object, why: str) -> None:
        """An entry that is no job."""
        name = raw.get("id") if isinstance(raw, Mapping) else None
        self.tell(file, None if name is None else str(name)[:200], why)
        self.rejected.append({"file": file, "why": why, "entry": raw})

    def drop(self, name: str, why: str) -> None:
        """The same for an entry that was read."""
        file, entry = self.entries.pop(name)
        self.reject(file, dict(entry.raw), why)

    def of(self, *files: str) -> list[Entry]:
        """The entries of these files."""
        return [entry for file, entry in self.entries.values() if file in files]


class _Importing:
    def __init__(self, store: Store, found: _Found, declared: Mapping[str, TaskSpec]) -> None:
        self._store = store
        self._found = found
        self._declared = declared
        self.stored: Counter[str] = Counter()
        self.existing = 0

    async def waiting(self) -> None:
        """Entries that are still to be done; those in progress are pending again, since their agents have no lease."""
        for entry in self._found.of("in-progress"):
            if (agent := entry.raw.get("claimedBy")) is not None:
                self._found.tell("in-progress", entry.name, f"{str(agent)[:80]!r} held it: it is pending again")
        built = [(entry, *made) for entry in self._in_order() if (made := self._built(entry)) is not None]
        for start in range(0, len(built), CHUNK):
            chunk = built[start : start + CHUNK]
            rules = {rule.key: rule for _, _, rules in chunk for rule in rules}
            answers = await self._store.enqueue([job for _, job, _ in chunk], list(rules.values()))
            for (entry, job, _), answer in zip(chunk, answers, strict=True):
                self.existing += answer.existing
                self.stored[self._found.entries[entry.name][0]] += not answer.existing
                if answer.existing and answer.id != job.id:
                    self._found.tell("pending", entry.name, "a job with its idempotencyKey is there already")

    def _built(self, entry: Entry) -> tuple[Job, tuple[GateRule, ...]] | None:
        try:
            return self._job(entry)
        except UsageError as error:
            self._found.drop(entry.name, str(error))
            return None

    def _job(self, entry: Entry) -> tuple[Job, tuple[GateRule, ...]]:
        spec, asked = self._spec(entry), entry.options()
        if (retries := asked.pop("retries", None)) is not None:
            attempts, base = retries
            asked["retry"] = Retry(attempts=attempts, base=base, factor=2, cap=max(3_600, base), jitter="equal")
        options = PLAIN.replace(**asked)
        job, rules = build_job(spec, spec.signature.bind_named(entry.args), options, id=entry.id)
        parents = [self._found.entries[name] for name in entry.dependencies]
        after = tuple(parent.id for _, parent in parents)
        waits = any(file in ("dead-letter", "cancelled") for file, _ in parents)
        return replace(job, after=after, if_parent_fails="wait" if waits else "cancel"), rules

    def _spec(self, entry: Entry) -> TaskSpec:
        return self._declared.get(entry.type) or Declaration(entry.type).spec()

    def _in_order(self) -> Iterator[Entry]:
        """Each behind those it depends on. One that depends on what is nowhere, or on itself, is refused."""
        found, todo = self._found, {entry.name for entry in self._found.of("in-progress", "pending")}
        done = {name for name in found.entries if name not in todo}
        while todo:
            ready = [
                name for name in found.entries if name in todo and done.issuperset(found.entries[name][1].dependencies)
            ]
            if not ready:
                break
            for name in ready:
                todo.discard(name)
                done.add(name)
                yield found.entries[name][1]
        for name in sorted(todo):
            missing = [each for each in found.entries[name][1].dependencies if each not in found.entries]
            why = (
                f"it depends on {missing[0]!r:.80}, which is nowhere"
                if missing
                else "what it depends on cannot be done"
            )
            found.drop(name, why)

    async def finished(self) -> None:
        """Entries that have ended: each is stored, claimed by the importer alone, and ended as it was."""
        todo = self._found.of(*FINISHED)
        ids = [entry.id for entry in todo]
        views = await self._store.get(ids) if ids else []
        for start in range(0, len(todo), CHUNK):
            chunk = list(zip(todo[start : start + CHUNK], views[start : start + CHUNK], strict=True))
            known = [entry for entry, view in chunk if view is not None and view.state in ENDED | {State.dead}]
            self.existing += len(known)
            await self._end([entry for entry, _ in chunk if entry not in known])

    async def _end(self, entries: Sequence[Entry]) -> None:
        jobs: dict[bytes, Entry] = {}
        lanes: dict[bytes, Lane] = {}
        batch: list[Job] = []
        for entry in entries:
            try:
                job, _ = self._plain(entry)
            except UsageError as error:
                self._found.drop(entry.name, str(error))
                continue
            jobs[job.id], lanes[job.id] = entry, job.lane
            batch.append(replace(job, lane=replace(job.lane, needs=(IMPORTER,))))
        if not batch:
            return
        await self._store.enqueue(batch)
        session = f"import:{secrets.token_hex(6)}"
        serves = Serves(tasks=tuple({job.lane.task for job in batch}), capabilities=(IMPORTER,))
        try:
            while jobs and (claimed := await self._claimed(session, serves)):
                ends = [self._transition(one, jobs[one.id], lanes[one.id]) for one in claimed if one.id in jobs]
                await self._store.settle(session, secrets.randbits(53), ends)
                for one in claimed:
                    if (entry_ended := jobs.pop(one.id, None)) is not None:
                        self.stored[self._found.entries[entry_ended.name][0]] += 1
        finally:
            await self._store.leave(session)

    def _plain(self, entry: Entry) -> tuple[Job, tuple[GateRule, ...]]:
        """Its job without limits and contracts, which are for work that is still to be done."""
        spec = Declaration(entry.type, queue=self._spec(entry).queue).spec()
        options = PLAIN.replace(priority=entry.priority, meta=entry.options()["meta"])
        return build_job(spec, spec.signature.bind_named(entry.args), options, id=entry.id)

    async def _claimed(self, session: str, serves: Serves) -> Sequence[Claimed]:
        await self._store.beat(Beat(session, LEASE_MS, serves))
        while True:
            request = ClaimRequest(session, serves, CHUNK, CHUNK, secrets.randbits(40), "import")
            claim = await self._store.claim(request)
            if claim.jobs or not claim.again:
                return claim.jobs

    def _transition(self, claimed: Claimed, entry: Entry, lane: Lane) -> Transition:
        file, _ = self._found.entries[entry.name]
        if file == "completed":
            return Succeed(claimed.id, claimed.token, entry.result)
        if file == "cancelled":
            return Drop(claimed.id, claimed.token, storable(entry.raw.get("lastError") or "cancelled"))
        message = storable(entry.error)
        failure = Failure("permanent", "imported", message, cause=cause_of("imported", entry.type, message=message))
        return Bury(claimed.id, claimed.token, failure, lane)


def _keep_rejected(folder: Path, rejected: Sequence[dict[str, Any]]) -> None:
    """Beside what was kept there before: what is refused must not be lost when the folder is written again."""
    text = text_of(folder, REJECTED)
    before = entries_in(text)[0] if text is not None else []
    known = {json.dumps(each, sort_keys=True, default=str) for each in before}
    new = [each for each in rejected if json.dumps(each, sort_keys=True, default=str) not in known]
    put(folder, REJECTED, [*before, *new])
