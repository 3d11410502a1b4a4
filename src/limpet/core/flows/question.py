"""Decides what a job keeps of the questions that agents ask people about it, and of the answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

import msgspec
from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.jobs.lease import Note
from limpet.core.text.storable import storable

KIND: Final = "question"  # of the note; its name is that of the event that answers it
CHARS: Final = 4_000
MOST: Final = 100  # of one job: each claim hands out all of them


class Question(Struct, frozen=True, omit_defaults=True):
    """What an agent asks."""

    question: str
    by: str = ""  # the agent

    @classmethod
    def of(cls, text: str, by: str) -> Self:
        """A question as it is kept; one without a word is refused."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidOption("the question is empty", fix="say what a person has to decide, or to provide")
        return cls(storable(text, CHARS), storable(by))

    def note(self, event: str) -> Note:
        """The question as its job keeps it."""
        return Note(KIND, event, msgspec.json.encode(self))


class Answer(Struct, frozen=True):
    """What a person answers."""

    answer: str
    by: str


def questions_of(notes: Iterable[Note]) -> dict[str, Question]:
    """The questions of a job by the events that answer them, the oldest first."""
    found: dict[str, Question] = {}
    for note in notes:
        if note.kind == KIND:
            try:
                found[note.name] = msgspec.json.decode(note.body, type=Question)
            except msgspec.MsgspecError:
                continue  # of another release
    return dict(sorted(found.items(), key=lambda each: number_of(each[0])))


def number_of(event: str) -> int:
    """Which question of its job an event answers: 3 for "answer:3"."""
    number = event.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
