"""Decides what may be shown of a job: the one place where its stored form becomes one for people.

A rule hides values by their path. What it hides is a secret of the job, and is then looked for in every text of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple, replace

from limpet.core.errors import UsageError
from limpet.core.flows.refs import Given, filled
from limpet.core.flows.steps import EVENT, KIND
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.meta import OURS, whole_meta
from limpet.core.jobs.view import AttemptView, Inspection, JobView
from limpet.core.redaction.rule import MASK, Path, Rule, Rules
from limpet.core.redaction.secrets import Scalar, Secrets, scalars_in

ARGUMENTS: Final = frozenset({"args", "patch", "before", "after"})  # facts of the audit log that hold arguments
_NOTHING: Final = Secrets()


class Shown(JobView, frozen=True):
    """A job as it may be shown. Records are made of this alone, so that no face can forget to ask what is hidden."""


class Redaction:
    """The rules of a namespace: those for all its jobs, and those of single tasks.

    >>> hidden = Redaction({"": [parse_rule("password")]})
    >>> hidden.of_task("login").masked("args", {"user": "ada", "password": "hunter2"})
    {'user': 'ada', 'password': '•••redacted•••'}
    """

    def __init__(self, rules: Mapping[str, Iterable[Rule]] | None = None) -> None:
        """Rules by the task that they are for; "": for every task."""
        said = {task: tuple(each) for task, each in (rules or {}).items()}
        everywhere = said.get("", ())
        self.everywhere = Hidden(everywhere)
        self.all = Hidden(rule for each in said.values() for rule in each)  # for what names no task
        self._tasks = {task: Hidden((*everywhere, *each)) for task, each in said.items() if task}

    def __bool__(self) -> bool:
        return bool(self.all.rules)

    def of_task(self, task: str) -> Hidden:
        """What is hidden of the jobs of a task."""
        return self._tasks.get(task, self.everywhere)

    def of(self, view: JobView) -> Veil:
        """What is hidden of one job."""
        return self.of_task(view.lane.task).of(view)

    def job(self, view: JobView, was: JobView | None = None) -> Shown:
        """One job as it may be shown; after an edit, also without the secrets of the arguments that it had."""
        return self.of_task(view.lane.task).of(view, was).view

    def inspection(self, found: Inspection) -> tuple[Veil, Inspection]:
        """A job with its attempts as they may be shown, and what hides its secrets in whatever is said of it."""
        veil = self.of(found.view)
        return veil, replace(found, view=veil.view, attempts=tuple(map(veil.attempt, found.attempts)))


class Hidden:
    """What is hidden of the jobs of one task."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = Rules(rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of(self, view: JobView, was: JobView | None = None) -> Veil:
        """What is hidden of one job; `was` is the same job before an edit."""
        return Veil(self.rules, view, was)

    def masked(self, place: str, value: Any, *under: str) -> Any:
        """A value at a place without what its rules hide."""
        return _Hiding(self.rules).value((place, *under), value)

    def facts(self, said: Any) -> Any:
        """What the audit log keeps of an action, without hidden arguments."""
        if not self.rules or not isinstance(said, dict) or ARGUMENTS.isdisjoint(said):
            return said
        hiding = _Hiding(self.rules)
        kept = {name: hiding.value(("args",), each) if name in ARGUMENTS else each for name, each in said.items()}
        return Secrets(hiding.found).out_of_all(kept)

    def call(self, args: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments and the options of jobs that are to come."""
        if not self.rules:
            return args, dict(options)
        hiding = _Hiding(self.rules)
        shown = hiding.value(("args",), args)
        said = {name: hiding.value(("meta",), each) if name == "meta" else each for name, each in options.items()}
        secrets = Secrets(hiding.found)
        return secrets.out_of_all(shown), secrets.out_of_all(said)

    def arguments(self, args: bytes) -> Secrets:
        """The hidden values among arguments."""
        hiding = _Hiding(self.rules)
        hiding.json(("args",), args)
        return Secrets(hiding.found)

    def given(self, job: Claimed, notes: Iterable[Note] = ()) -> Secrets:
        """The hidden values that a claimed job has: in its arguments and meta, from its parents, in what it noted."""
        if not self.rules:
            return _NOTHING
        hiding = _Hiding(self.rules)
        hiding.value(("args",), arguments_of(job))
        hiding.meta(job.meta)
        for left in job.inputs.values():
            hiding.json(("result",), left.result)
        for note in (*job.notes, *notes):
            hiding.note(note)
        return Secrets(hiding.found)


def arguments_of(job: Claimed) -> Any:
    """The arguments of a claimed job, with what its parents left in its place where that can be told."""
    try:
        args = msgspec.json.decode(job.args)
        given = Given.to(job)
        return args if given is None else msgspec.json.decode(msgspec.json.encode(filled(args, given)))
    except (ValueError, RecursionError, UsageError):
        return None


class Veil:
    """One job as it may be shown, and its secrets out of any text about it."""

    def __init__(self, rules: Rules, view: JobView, was: JobView | None = None) -> None:
        if not rules:
            self.secrets, self.view = _NOTHING, Shown(*astuple(view))
            return
        hiding = _Hiding(rules)
        if was is not None:
            hiding.json(("args",), was.args)
        args, result = hiding.json(("args",), view.args), hiding.json(("result",), view.result)
        meta, notes = hiding.meta(view.meta), [(note, hiding.note(note)) for note in view.notes]
        self.secrets = secrets = Secrets(hiding.found)
        shown = replace(
            view,
            args=self._raw(args) or b"",
            result=self._raw(result),
            meta=self._meta(meta) if view.meta else view.meta,
            notes=tuple(Note(note.kind, self.text(note.name), self._raw(body) or b"") for note, body in notes),
            reason=self.text(view.reason),
            unique=None if view.unique is None else self.text(view.unique),
            tags=tuple(map(self.text, view.tags)),
            lane=self._lane(view) if secrets else view.lane,
        )
        self.view = Shown(*astuple(shown))

    def text(self, text: str) -> str:
        """What is said of the job, without its secrets."""
        return self.secrets.out_of(text)

    def value(self, value: Any) -> Any:
        """A JSON value about the job, without its secrets."""
        return self.secrets.out_of_all(value)

    def attempt(self, attempt: AttemptView) -> AttemptView:
        """One run of it."""
        if not self.secrets:
            return attempt
        return replace(attempt, message=self.text(attempt.message), traceback=self.text(attempt.traceback))

    def _raw(self, content: _Json | bytes | None) -> bytes | None:
        if not isinstance(content, _Json):
            return content
        if content.said is UNSET:
            return msgspec.json.encode(self.value(content.value))
        said = self.secrets.out_of_texts(content.said)
        if content.value is not UNSET:
            said["value"] = self.value(content.value)
        return msgspec.json.encode(said)

    def _meta(self, meta: dict[str, Any]) -> bytes:
        said = {name: each if name in OURS else self.secrets.out_of_all(each) for name, each in meta.items()}
        return msgspec.json.encode(said)

    def _lane(self, view: JobView) -> Lane:
        lane = view.lane
        return replace(
            lane,
            tenant=None if lane.tenant is None else self.text(lane.tenant),
            limits=tuple(map(self.text, lane.limits)),
            keys=tuple(map(self.text, lane.keys)),
            breaker_key=None if lane.breaker_key is None else self.text(lane.breaker_key),
        )


class _Json:
    """A decoded value of a user's, and what Limpet itself says beside it, whose numbers stay what they are."""

    __slots__ = ("said", "value")

    def __init__(self, value: Any, said: Any = UNSET) -> None:
        self.value = value
        self.said = said


class _Hiding:
    """Walks the content of one job, and remembers what it hides."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.found: set[Scalar] = set()

    def value(self, path: Path, value: Any) -> Any:
        """A value without what is hidden of it; one that is nested too deeply to be walked is hidden as a whole."""
        try:
            return self._walked(path, value)
        except RecursionError:
            return MASK

    def _walked(self, path: Path, value: Any) -> Any:
        """No value (null) is shown."""
        if value is not None and self._rules.hides(path):
            self.found.update(scalars_in(value))
            return MASK
        if isinstance(value, dict):
            return {key: self._walked((*path, key), each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._walked(path, each) for each in value]
        return value

    def json(self, path: Path, raw: bytes | None) -> _Json | bytes | None:
        """Stored JSON; what cannot be read is hidden as a whole, since nothing of it can be told apart."""
        if not raw:
            return raw
        try:
            return _Json(self.value(path, msgspec.json.decode(raw)))
        except (ValueError, RecursionError):
            return _Json(MASK)

    def meta(self, raw: bytes) -> dict[str, Any]:
        """A job's meta; what Limpet itself says there is never hidden."""
        said = whole_meta(raw)
        return {name: each if name in OURS else self.value(("meta", name), each) for name, each in said.items()}

    def note(self, note: Note) -> Any:
        """The content of what is kept with a job: of a step its value, of a checkpoint and of an event all of it."""
        if note.kind == "checkpoint":
            return self.json(("checkpoint",), note.body)
        if note.kind == EVENT:
            return self.json(("events", note.name), note.body)
        try:
            said = msgspec.json.decode(note.body)
        except (ValueError, RecursionError):
            return note.body
        if note.kind == KIND and isinstance(said, dict) and "value" in said:
            return _Json(self.value(("steps", note.name), said.pop("value")), said)
        return _Json(UNSET, said)
