"""Decides what an alert rule watches, and from which number on and after how long it fires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from limpet.core.jobs.view import Control
from limpet.core.text.duration import text_of_ms
from limpet.core.text.wildcard import whole_fits

KIND: Final = "alert"  # of the two controls: the rules, and the book of alerts
RULES: Final = "rules"  # the name of the control that has the published rules

RuleName = Literal[
    "dead_letters",
    "breaker_open",
    "oldest_ready",
    "depth_growing",
    "failure_rate",
    "duration",
    "no_worker",
    "schedule_missed",
    "budget",
    "store",
    "store_away",
]
NAMES: Final[tuple[RuleName, ...]] = get_args(RuleName)
Measure = Literal["", "jobs", "time", "share", "percent"]
Subject = Literal["queue", "task", "breaker", "schedule", "budget", "store"]

MINUTE_MS: Final = 60_000
USUAL_EVERY_MS: Final = 10_000


class Rule(Struct, frozen=True, omit_defaults=True):
    """One rule as it is in force. Numbers are in the unit of its measure, times in milliseconds.

    It fires for a subject whose number is at least `at_least` for as long as `for_ms`, and resolves when it has been
    lower for `clear_after_ms`. Without a number the condition itself counts; None: it fires only for those of `each`.
    """

    name: RuleName
    subject: Subject
    measure: Measure = ""
    at_least: float | None = None
    for_ms: int = 0
    clear_after_ms: int = MINUTE_MS
    each: dict[str, float] = {}  # another number for single subjects
    ignore: tuple[str, ...] = ()  # subjects without alerts; * is any text
    within_ms: int = 0  # of a depth: for how long it grows
    attempts: int = 0  # of a failure rate: as many in a minute, or it says nothing

    def number_of(self, subject: str) -> float | None:
        """From which number on it fires for this subject; None: it never does."""
        if any(whole_fits(pattern)(subject) for pattern in self.ignore):
            return None
        if subject in self.each:
            return self.each[subject]
        return 1.0 if not self.measure else self.at_least

    def told(self, number: float | None) -> str:
        """A number of its measure as people read it."""
        if number is None:
            return ""
        match self.measure:
            case "time":
                return text_of_ms(round(number))
            case "share":
                return f"{number * 100:.3g} %"
            case "percent":
                return f"{number:.3g} %"
            case "jobs":
                return f"{number:,.0f}"
        return ""


DEFAULTS: Final[Mapping[RuleName, Rule]] = {
    rule.name: rule
    for rule in (
        Rule("dead_letters", "queue", "jobs", 1),
        Rule("breaker_open", "breaker"),
        Rule("oldest_ready", "queue", "time", 15 * MINUTE_MS),
        Rule("depth_growing", "queue", "jobs", 1_000, clear_after_ms=5 * MINUTE_MS, within_ms=15 * MINUTE_MS),
        Rule("failure_rate", "task", "share", 0.5, MINUTE_MS, 5 * MINUTE_MS, attempts=20),
        Rule("duration", "task", "time", None, MINUTE_MS, 5 * MINUTE_MS),
        Rule("no_worker", "task", for_ms=MINUTE_MS),
        Rule("schedule_missed", "schedule", "time", MINUTE_MS),
        Rule("budget", "budget", "percent", 80, clear_after_ms=5 * MINUTE_MS),
        Rule("store", "store", for_ms=MINUTE_MS),
        Rule("store_away", "store", for_ms=30_000, clear_after_ms=0),
    )
}

# What a person does first about an alert of a rule.
FIXES: Final[Mapping[RuleName, str]] = {
    "dead_letters": "limpet dead causes",
    "breaker_open": "limpet breakers --open",
    "oldest_ready": "limpet explain one of its jobs; add workers or raise a limit",
    "depth_growing": "add workers, or slow down what enqueues",
    "failure_rate": "limpet jobs 'task:{subject} error:*'",
    "duration": "limpet tasks {subject}",
    "no_worker": "start a worker that has the task: limpet workers",
    "schedule_missed": "limpet schedules show {subject}",
    "budget": "limpet limits",
    "store": "limpet doctor",
    "store_away": "start it, or mend the way to it: servers and workers wait for it",
}


class WebhookRef(Struct, frozen=True, omit_defaults=True):
    """A webhook as it is stored: its address and its secret are in the settings of some processes alone."""

    name: str
    rules: tuple[RuleName, ...] = ()  # none: of every rule

    def hears(self, rule: str) -> bool:
        """Whether alerts of this rule are told to it; of a test it always hears."""
        return not self.rules or rule not in NAMES or rule in self.rules


class AlertRules(Struct, frozen=True, omit_defaults=True):
    """All that is decided about alerts, as a settings file says it and the store keeps it."""

    rules: tuple[Rule, ...] = tuple(DEFAULTS.values())
    webhooks: tuple[WebhookRef, ...] = ()
    every_ms: int = USUAL_EVERY_MS

    def of(self, name: RuleName) -> Rule | None:
        """The rule of that name; None when it is switched off."""
        return next((rule for rule in self.rules if rule.name == name), None)

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, RULES, msgspec.json.encode(self, order="deterministic"))


def read_rules(controls: list[Control]) -> AlertRules:
    """The published rules; the defaults where none are, or where another release wrote what cannot be read here."""
    for control in controls:
        if control.name == RULES:
            try:
                return msgspec.json.decode(control.value, type=AlertRules)
            except msgspec.MsgspecError:
                break
    return AlertRules()


def fix_of(rule: RuleName, subject: str) -> str:
    """What a person does first about this alert."""
    return FIXES[rule].replace("{subject}", subject)
