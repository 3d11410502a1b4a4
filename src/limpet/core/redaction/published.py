"""Decides how the rules of a namespace are stored: each as a record of its own, so that programs only add to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.errors import UsageError
from limpet.core.jobs.view import Control
from limpet.core.redaction.redaction import Redaction
from limpet.core.redaction.rule import Rule, parse_rule

KIND: Final = "redaction"


class PublishedRule(Struct, frozen=True, omit_defaults=True):
    """One rule for the jobs of a task, or of all ("")."""

    rule: str
    task: str = ""
    by: str = ""  # the person who added it; "": code declares it
    at_ms: int = 0
    removed: bool = False

    @property
    def name(self) -> str:
        """What its record is called. Names of tasks have no spaces, so that the first one ends them."""
        return f"{self.task} {self.rule}"

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self))


def read_rules(controls: Iterable[Control]) -> dict[str, PublishedRule]:
    """The rules in stored records, by name; what another release wrote otherwise is left out."""
    found: dict[str, PublishedRule] = {}
    for control in controls:
        try:
            said = msgspec.json.decode(control.value, type=PublishedRule)
            parse_rule(said.rule)
        except (msgspec.MsgspecError, UsageError):
            continue
        found[control.name] = said
    return found


def redaction_from(controls: Iterable[Control]) -> Redaction:
    """What is hidden by stored rules."""
    rules: dict[str, list[Rule]] = {}
    for one in read_rules(controls).values():
        if not one.removed:
            rules.setdefault(one.task, []).append(parse_rule(one.rule))
    return Redaction(rules)
