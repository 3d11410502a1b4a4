"""Decides what is remembered of a job's durable calls, and whether its code still makes them as it did."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from limpet.core.errors import InvalidStep, PayloadTooLarge, StepsChanged
from limpet.core.flows.question import questions_of
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.lease import MAX_EVENTS, MAX_EVENTS_BYTES, Note
from limpet.core.tasks.codec import MAX_BYTES, encode, looked_into, too_large
from limpet.core.text.storable import is_storable

StepKind = Literal["step", "sleep", "wait", "approval"]
StepsOption = Literal["in-order", "by-name"]
STEPS_OPTIONS: Final[tuple[str, ...]] = get_args(StepsOption)

KIND: Final = "step"  # of the notes in which durable calls are remembered
EVENT: Final = "event"
WAITING: Final = "waiting"

# Every claim of a job hands out all that it remembers, so that is bounded.
MAX_STEPS: Final = 1_000
MAX_STEP_BYTES: Final = MAX_BYTES
MAX_STEPS_BYTES: Final = 4 * 1024 * 1024
MAX_NAME_CHARS: Final = 200
_NAMED: Final = 5  # steps that an error names one by one

# Events that other verbs than `signal` send: a person's decision, the early end of a sleep, an answer to an agent.
APPROVAL: Final = "approval:"
SLEEP: Final = "sleep:"
ANSWER: Final = "answer:"
RESERVED: Final = (APPROVAL, SLEEP, ANSWER)

_WORDS: Final[dict[str, str]] = {
    "step": "step({!r})",
    "sleep": "sleep(name={!r})",
    "wait": "wait_for({!r})",
    "approval": "approval(name={!r})",
}


class KeptError(Struct, frozen=True):
    """The error of a step that is remembered instead of a result."""

    type: str
    message: str


class Record(Struct, frozen=True, omit_defaults=True):
    """What is remembered of one durable call.

    `place` counts the calls that the handler itself made, from 1. What a task or thread calls that the handler started
    has no place of its own (it is the handler's at that moment), and no order among the calls of others; `beside` is
    the name of the first call that this task or thread made.
    """

    kind: StepKind
    place: int
    beside: str = ""  # the handler itself
    value: msgspec.Raw | UnsetType = UNSET  # of a step: its result
    error: KeptError | None = None  # of a step: why there is none
    event: str | None = None  # of a sleep, a wait, an approval: what ends it
    until_ms: int | None = None  # when it ends by itself
    over: bool = False  # of a wait: the time was over before the event came
    question: str = ""  # of an approval

    def note(self, name: str) -> Note:
        """The record as a job keeps it."""
        return Note(KIND, name, msgspec.json.encode(self))


class Call(Struct, frozen=True):
    """One durable call of this attempt, and what is remembered of it."""

    kind: StepKind
    name: str
    place: int
    beside: str
    record: Record | None

    def recorded(self, **what: Any) -> Record:
        """The record of this call, to be kept."""
        return Record(self.kind, self.place, self.beside, **what)


class History:
    """The durable calls that a job remembers, and those that this attempt has made so far.

    >>> history = History([Record("step", 1).note("charge")])
    >>> history.call("step", "charge").record is not None
    True
    >>> history.call("step", "mail").record is None
    True
    """

    def __init__(self, notes: Iterable[Note], *, job: str = "ID", in_order: bool = True) -> None:
        self._job = job
        kept = {note.name: note.body for note in notes if note.kind == KIND}
        self.records = {name: msgspec.json.decode(body, type=Record) for name, body in kept.items()}
        self.size_bytes = sum(map(len, kept.values()))
        self._in_order = in_order
        self._called: set[str] = set()
        self._strands = {record.beside for record in self.records.values() if record.beside}
        self._at = 0  # the place of the handler's last call
        # What the handler itself has called, as it must call it again: the last is the next.
        self._ahead = sorted(
            ((record.place, name) for name, record in self.records.items() if not record.beside), reverse=True
        )

    @property
    def calls(self) -> int:
        """How many durable calls this attempt has made."""
        return len(self._called)

    def call(self, kind: StepKind, name: str, *, beside: str = "") -> Call:
        """The next durable call. Raises InvalidStep when it cannot be told from others, StepsChanged when it is not
        the one that was recorded at its place.
        """
        self._refuse(name)
        record = self.records.get(name)
        if record is not None and record.kind != kind:
            raise self._changed(_words(record.kind, name), _words(kind, name), [name])
        if self._in_order and not beside:
            self._match(kind, name, record)
        place = self._at + (not beside) if record is None else record.place
        if not beside:
            self._at = max(self._at, place)
        self._called.add(name)
        return Call(kind, name, place, beside, record)

    def unreached(self, call: Call) -> list[str]:
        """Recorded calls that other tasks had made before this new one, and have not made in this attempt yet."""
        if not self._in_order or call.record is not None:
            return []
        before = call.place + bool(call.beside)
        left = [
            (record.place, name)
            for name, record in self.records.items()
            if record.beside not in ("", call.beside) and record.place < before and name not in self._called
        ]
        return [name for _, name in sorted(left)]

    def is_awaited(self) -> bool:
        """True when a task that made calls beside the handler before has made none in this attempt."""
        return not self._called.issuperset(self._strands)

    def missed(self, name: str, call: Call) -> StepsChanged:
        """The error of a new call before which a recorded one should have been made, and was not."""
        return self._changed(
            _words(self.records[name].kind, name), f"{_words(call.kind, call.name)} without it", [name]
        )

    def left_out(self) -> list[str]:
        """Recorded calls that this attempt has not made."""
        return [name for name in self.records if name not in self._called]

    def keep(self, call: Call, record: Record) -> Note:
        """The note of a call that is to be remembered; raises PayloadTooLarge when that is more than a job may keep."""
        note = record.note(call.name)
        size = self.size_bytes + len(note.body)
        if size > MAX_STEPS_BYTES:
            raise PayloadTooLarge(
                f"with {_words(call.kind, call.name)} the steps of this job take {size:,} bytes, "
                f"over {MAX_STEPS_BYTES:,}",
                fix="return ids or URLs of what you stored elsewhere, or split the job",
            )
        self.size_bytes = size
        self.records[call.name] = record
        return note

    def _changed(self, recorded: str, called: str, to_forget: list[str]) -> StepsChanged:
        """Names both calls, and every way on."""
        return StepsChanged(
            f"the code changed while this job was under way: it called {recorded} here before, and now {called}",
            recorded=recorded,
            called=called,
            fix=f"bring the old code back and retry; or {forgetting(self._job, *to_forget)}, "
            'and those run again; or declare the task with steps="by-name", if the order does not matter',
        )

    def _match(self, kind: StepKind, name: str, record: Record | None) -> None:
        if record is not None and record.beside:
            return  # what had no order has none now
        while self._ahead and self._ahead[-1][1] in self._called:
            self._ahead.pop()  # called beside it this time
        if not self._ahead:
            return
        place, expected = self._ahead[-1]
        if expected == name:
            self._ahead.pop()
        elif record is not None or self._at + 1 >= place:
            # A new call may stand where nothing is recorded any more: a step that was forgotten, or one whose error
            # was caught and not kept.
            ahead = [later for _, later in reversed(self._ahead)]
            raise self._changed(_words(self.records[expected].kind, expected), _words(kind, name), ahead)

    def _refuse(self, name: str) -> None:
        check_name(name, "the name of a step")
        if name in self._called:
            raise InvalidStep(
                f"the name {name!r} is used twice in one job",
                fix='names are unique among steps, sleeps and waits: number them, as in f"page-{n}"',
            )
        if len(self._called) >= MAX_STEPS:
            raise InvalidStep(
                f"a job has at most {MAX_STEPS:,} steps", fix="split it into jobs, or do more in each step"
            )


def forgetting(job: str, *names: str) -> str:
    """The command by which a person lets a job do these again."""
    words = [f"--forget {shlex.quote(name)}" for name in names]
    return f"`limpet dead retry {job} {' '.join(words) if len(words) <= _NAMED else '--forget-all'}`"


def check_name(name: object, what: str) -> str:
    """A name that every engine can keep and every face can show."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_CHARS or not is_storable(name):
        shown = repr(name)
        raise InvalidStep(
            f"{what} is {shown if len(shown) <= 60 else shown[:60] + '…'}",
            fix=f"use 1 to {MAX_NAME_CHARS} characters of text, and no NUL",
        )
    return name


def check_event(event: object) -> str:
    """An event's name, as people give it."""
    name = check_name(event, "the name of an event")
    if name.startswith(RESERVED):
        raise InvalidStep(
            f"{name!r} is an event of Limpet's own",
            fix="decide on approvals with approve and reject, end a sleep with retry, "
            "answer a question with agent answer, or choose another name",
        )
    return name


def _words(kind: str, name: str) -> str:
    return _WORDS[kind].format(name)


class Approval(Struct, frozen=True):
    """What a person decided."""

    approved: bool
    by: str = ""
    comment: str = ""


class Waiting(Struct, frozen=True):
    """One of the things that a suspended job waits for."""

    event: str
    until_ms: int  # when that ends by itself; FOREVER_MS: never
    question: str = ""  # of an approval, or of an agent


class Asking(Struct, frozen=True):
    """An approval that a job has asked for and that is not decided."""

    event: str
    question: str

    @property
    def name(self) -> str:
        """What its code calls it."""
        return self.event.removeprefix(APPROVAL)


def waits_of(notes: Iterable[Note], due_at_ms: int) -> list[Waiting]:
    """What a scheduled job with these notes waits for, in the order of its code; nothing if something else put it off.

    A store notes when the job is due beside each event: a note that says another time is of a wait that is over.
    """
    kept = list(notes)
    due = b"%d" % due_at_ms
    events = [note.name for note in kept if note.kind == WAITING and note.body == due]
    records = sorted(_records(kept), key=lambda record: record.place) if events else []
    found = {
        record.event: Waiting(
            record.event, FOREVER_MS if record.until_ms is None else record.until_ms, question=record.question
        )
        for record in records
        if record.event in events and not record.over
    }
    asked = questions_of(kept) if len(found) < len(events) else {}
    return [
        *found.values(),
        *(
            Waiting(event, due_at_ms, asked[event].question if event in asked else "")
            for event in events
            if event not in found
        ),
    ]


def asking_of(notes: Iterable[Note]) -> list[Asking]:
    """The approvals that the job with these notes waits for."""
    kept = list(notes)
    given = {note.name for note in kept if note.kind == EVENT}
    return [
        Asking(record.event, record.question)
        for record in sorted(_records(kept), key=lambda record: record.place)
        if record.kind == "approval" and record.event is not None and not record.over and record.event not in given
    ]


def _records(notes: Iterable[Note]) -> list[Record]:
    return [record for note in notes if note.kind == KIND and (record := read_record(note)) is not None]


def approval_of(notes: Iterable[Note], event: str) -> Approval | None:
    """What was decided by this event; None when it is no decision, or none was made."""
    for note in notes:
        if note.kind == EVENT and note.name == event and event.startswith(APPROVAL):
            return msgspec.json.decode(note.body, type=Approval)
    return None


def read_record(note: Note) -> Record | None:
    """The record in a note; None when another release wrote one that cannot be read here."""
    try:
        return msgspec.json.decode(note.body, type=Record)
    except msgspec.MsgspecError:
        return None


def too_many_events(job: str) -> PayloadTooLarge:
    """The refusal of an event that a job cannot keep."""
    return PayloadTooLarge(
        f"job {job} keeps {MAX_EVENTS:,} events, or {MAX_EVENTS_BYTES:,} bytes of them, and takes no more",
        fix="signal ids or URLs of what you stored elsewhere, and only events that it waits for",
    )


def encode_value(value: Any) -> bytes:
    """JSON of what a signal gives to a job."""
    what = "the value of the signal"
    raw = encode(value, what)
    looked_into(value, what, allow_bytes=False)
    if len(raw) > MAX_STEP_BYTES:
        raise too_large(len(raw), MAX_STEP_BYTES, what, "give an id or a URL of what you stored elsewhere")
    return raw
