"""The records of alerts: one condition that is watched, what is to be told of it, and the book that holds them all."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.alerts.rule import KIND, RuleName
from limpet.core.jobs.ids import id_of
from limpet.core.jobs.view import Control
from limpet.core.text.wildcard import whole_fits

BOOK: Final = "book"  # the name of the control
MOST_SILENCES: Final = 100

AlertState = Literal["pending", "firing", "resolved"]
NoticeState = Literal["firing", "resolved", "test"]


class Condition(Struct, frozen=True):
    """What a look has found: a rule's condition holds for this subject now."""

    rule: RuleName
    subject: str
    text: str
    number: float | None = None
    queue: str | None = None  # the queue that it is about, if it is about one


class Alert(Struct, frozen=True, omit_defaults=True):
    """One condition from when it was first seen until it has resolved. While it is pending it is told to no one."""

    rule: RuleName
    subject: str
    text: str
    since_ms: int
    number: float | None = None
    queue: str | None = None
    fired_ms: int | None = None
    quiet_since_ms: int | None = None  # it fires, and its condition has not held since
    resolved_ms: int | None = None
    told: bool = False  # that it fires: so that its end is told, too

    @property
    def state(self) -> AlertState:
        """Where it stands."""
        if self.resolved_ms is not None:
            return "resolved"
        return "pending" if self.fired_ms is None else "firing"

    @property
    def key(self) -> str:
        """What it is called: rule and subject."""
        return f"{self.rule}:{self.subject}"

    def notice(self, state: NoticeState, at_ms: int) -> Notice:
        """What is told of it."""
        return Notice(state, self.rule, self.subject, self.text, self.fired_ms or at_ms, at_ms, self.number, self.queue)


class Notice(Struct, frozen=True, omit_defaults=True):
    """One thing that is told: that an alert fires, or that it has resolved. It stays true whatever comes later."""

    state: NoticeState
    rule: str
    subject: str
    text: str
    fired_ms: int
    at_ms: int
    number: float | None = None
    queue: str | None = None

    def job_id(self, webhook: str) -> bytes:
        """The id of the job that tells it to this webhook, the same in every process: the receiver's key, too."""
        said = "\0".join((self.rule, self.subject, self.state, str(self.fired_ms), webhook)).encode()
        return id_of(self.at_ms, int.from_bytes(sha256(said).digest()[:9], "big"))

    def before(self) -> Notice:
        """Of a recovery: the notice that it fires. Only its id is the same."""
        return replace(self, state="firing", at_ms=self.fired_ms)


class Silence(Struct, frozen=True, omit_defaults=True):
    """A person wants to hear nothing of some alerts for a time."""

    pattern: str  # RULE, RULE:SUBJECT, or such with *
    until_ms: int
    by: str
    at_ms: int
    reason: str = ""

    def covers(self, rule: str, subject: str) -> bool:
        """Whether it is about this alert."""
        fits = whole_fits(self.pattern)
        return fits(rule) or fits(f"{rule}:{subject}")


class Sample(Struct, frozen=True, omit_defaults=True):
    """How many ready jobs queues had at one instant."""

    at_ms: int
    depths: dict[str, int]


class Book(Struct, frozen=True, omit_defaults=True):
    """All alerts, as they are stored: written by one process at a time, over the version that it has read."""

    alerts: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    notices: tuple[Notice, ...] = ()  # of this revision: told once it is written
    revision: int = 0  # grows with each change that has something to tell
    samples: tuple[Sample, ...] = ()  # oldest first
    leader: str = ""  # the process that looks, until another one takes it for dead
    until_ms: int = 0
    looked_ms: int = 0
    slow_ms: int = 0  # when it last looked at what is expensive to look at

    def led_by_other(self, name: str, now_ms: int) -> bool:
        """Whether another process than this one looks."""
        return self.leader != name and now_ms < self.until_ms

    def silence_of(self, rule: str, subject: str, now_ms: int) -> Silence | None:
        """The silence that lasts longest of those that cover an alert now."""
        found = [one for one in self.silences if now_ms < one.until_ms and one.covers(rule, subject)]
        return max(found, key=lambda one: one.until_ms, default=None)

    def silenced(self, silence: Silence, now_ms: int) -> Book:
        """The same with this silence, in place of one with the same pattern; those that are over go."""
        kept = [one for one in self.silences if one.pattern != silence.pattern and now_ms < one.until_ms]
        added = [*kept, silence] if silence.until_ms > now_ms else kept
        return replace(self, silences=tuple(sorted(added, key=lambda one: one.until_ms)))

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, BOOK, msgspec.json.encode(self))


class KeptBook(Struct, frozen=True):
    """The book as it was read, and its version."""

    book: Book
    version: int


def read_book(controls: list[Control]) -> KeptBook:
    """The stored book; one that cannot be read is begun again over its version."""
    for control in controls:
        if control.name == BOOK:
            try:
                return KeptBook(msgspec.json.decode(control.value, type=Book), control.version)
            except msgspec.MsgspecError:
                return KeptBook(Book(), control.version)
    return KeptBook(Book(), 0)
