"""Decides which numbers one field of a cron expression stands for, and refuses by name what it cannot read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean

_LONGEST_NUMBER: Final = 4  # digits; no field has a number longer than two
_FOREIGN: Final = re.compile(r"\?|LW?|\w*[LW]|\w+#\w*", re.IGNORECASE)  # of Quartz: last, nearest weekday, n-th


@dataclass(frozen=True)
class Field:
    """One place of an expression: its name, its range, and the words that stand for numbers in it."""

    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()

    def values(self, text: str) -> tuple[int, ...]:
        """The numbers that `text` stands for, in order, each once.

        >>> MINUTE.values("50-58/4,5")
        (5, 50, 54, 58)
        """
        return tuple(sorted({value for part in text.split(",") for value in self._part(part)}))

    def _part(self, part: str) -> range:
        term, slash, step_text = part.partition("/")
        step = self._step(part, step_text) if slash else 1
        first_text, dash, last_text = term.partition("-")
        if term == "*":
            first, last = self.lowest, self.highest
        elif dash:
            first, last = self._number(part, first_text), self._number(part, last_text)
            last = self._backwards(part, first, last) if last < first else last
        else:
            first = self._number(part, term)
            last = self.highest if slash else first
        return range(first, last + 1, step)

    def _number(self, part: str, text: str) -> int:
        upper = text.upper()
        if upper in self.words:
            return self.lowest + self.words.index(upper)
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER:
            raise self._refusal(part, "cannot be read", self._hint(text))
        if not self.lowest <= int(text) <= self.highest:
            raise self._refusal(part, "is out of range", f"use {self.lowest} to {self.highest}")
        return int(text)

    def _step(self, part: str, text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_NUMBER or not int(text):
            raise self._refusal(part, f"has the step {text!r}", "a step is a number from 1, such as */5")
        if int(text) > self.highest - self.lowest:
            # Accepted by most crons, where */90 in the minutes quietly means "once an hour".
            fix = 'write the one number that it reaches; "every 90 minutes" is Every("90m")'
            raise self._refusal(part, "has a step longer than the range", fix)
        return int(text)

    def _backwards(self, part: str, first: int, last: int) -> int:
        raise self._refusal(
            part, "runs backwards", f"write {first}-{self.highest},{self.lowest}-{last}, or swap the two ends"
        )

    def _hint(self, text: str) -> str:
        if _FOREIGN.fullmatch(text):
            return "L, W, # and ? are not part of this syntax; use numbers, names, lists, ranges and steps"
        allowed = f"use *, {self.lowest} to {self.highest}, a list 1,2, a range 1-5 or a step */5"
        if self.words and text.isalpha():
            return did_you_mean(text.upper()[:3], self.words)  # three letters of any name of theirs
        return f"{allowed}, or a name such as {self.words[1]}" if self.words else allowed

    def _refusal(self, part: str, why: str, fix: str) -> InvalidOption:
        return InvalidOption(f"the {self.name} {part!r} {why}", fix=fix)


class WeekdayField(Field):
    """The day of the week: Sunday is 0 and 7, so a range may end with it and the numbers wrap around."""

    def values(self, text: str) -> tuple[int, ...]:
        """The numbers that `text` stands for, 0 (Sunday) to 6.

        >>> WEEKDAY.values("FRI-SUN")
        (0, 5, 6)
        """
        return tuple(sorted({value % 7 for value in super().values(text)}))

    def _backwards(self, part: str, first: int, last: int) -> int:
        return 7 if last == 0 else super()._backwards(part, first, last)


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day of month", 1, 31)
MONTH: Final = Field(
    "month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
)
WEEKDAY: Final = WeekdayField("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
