"""Decides what the [alerts] table of a settings file may say, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from limpet.core.alerts.rule import DEFAULTS, NAMES, USUAL_EVERY_MS, AlertRules, Rule, RuleName, WebhookRef
from limpet.core.alerts.webhook import LONGEST_TIMEOUT_MS, USUAL_TIMEOUT_MS, Format, Webhook, checked_url
from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import checked_name, refuse_unknown
from limpet.core.text.duration import text_of_ms, to_ms

Number = int | float | str

LEAST_EVERY_MS: Final = 100
LONGEST_EVERY_MS: Final = 300_000


class RuleTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """What a file changes of one rule; what is left out is as by default."""

    enabled: bool = True
    at_least: Number | UnsetType = UNSET
    for_: Number | UnsetType = UNSET
    clear_after: Number | UnsetType = UNSET
    each: dict[str, Number] = {}
    ignore: list[str] = []
    within: Number | UnsetType = UNSET
    attempts: int | UnsetType = UNSET

    def rule(self, name: RuleName, where: str) -> Rule:
        """The rule that it makes."""
        usual = DEFAULTS[name]
        if not usual.measure and (self.at_least is not UNSET or self.each):
            raise InvalidOption(f"{where}: {name} has no number", fix="leave at_least and each out; for= delays it")
        if self.within is not UNSET and not usual.within_ms:
            raise InvalidOption(f"{where}: {name} takes no within", fix="for= is how long the condition must hold")
        if self.attempts is not UNSET and not usual.attempts:
            raise InvalidOption(f"{where}: {name} takes no attempts", fix="it belongs to failure_rate")
        numbers = {subject: _number(usual, value, f"{where}: each.{subject}") for subject, value in self.each.items()}
        return replace(
            usual,
            at_least=usual.at_least if self.at_least is UNSET else _number(usual, self.at_least, f"{where}: at_least"),
            for_ms=_time(self.for_, usual.for_ms, f"{where}: for"),
            clear_after_ms=_time(self.clear_after, usual.clear_after_ms, f"{where}: clear_after"),
            each=numbers,
            ignore=tuple(self.ignore),
            within_ms=_time(self.within, usual.within_ms, f"{where}: within"),
            attempts=usual.attempts if self.attempts is UNSET else _counted(self.attempts, f"{where}: attempts"),
        )


class WebhookTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One receiver of alerts: `url` or the environment variable that has it, and so for the secret."""

    url: str = ""
    url_env: str = ""
    format: Format = "json"
    secret: str = ""
    secret_env: str = ""
    rules: list[str] = []
    timeout: Number = USUAL_TIMEOUT_MS / 1000

    def checked(self, where: str) -> None:
        """Refuse by name what makes no sense."""
        if bool(self.url) == bool(self.url_env):
            raise InvalidOption(f"{where} needs url or url_env, and not both", fix="url_env keeps it out of the file")
        if self.secret and self.secret_env:
            raise InvalidOption(f"{where} has secret and secret_env", fix="secret_env keeps it out of the file")
        if self.url:
            checked_url(self.url, where=where)
        if self.format == "slack" and (self.secret or self.secret_env):
            raise InvalidOption(f"{where}: a message to Slack is not signed", fix='leave the secret out, or "json"')
        refuse_unknown(self.rules, NAMES, f"{where} rules")
        if not 0 < self.timeout_ms(where) <= LONGEST_TIMEOUT_MS:
            longest = text_of_ms(LONGEST_TIMEOUT_MS)
            raise InvalidOption(f"{where}: timeout={self.timeout!r} is out of range", fix=f"at most {longest}")

    def timeout_ms(self, where: str) -> int:
        """How long one attempt to tell it may take."""
        return to_ms(self.timeout, what=f"{where}: timeout")

    def webhook(self, name: str, environ: Mapping[str, str]) -> Webhook | None:
        """The receiver; None in a process whose environment does not have its address, or its secret."""
        url = self.url or environ.get(self.url_env, "")
        secret = self.secret or environ.get(self.secret_env, "")
        if not url or (self.secret_env and not secret):
            return None
        where = f"webhook {name}"
        return Webhook(name, checked_url(url, where=where), self.format, secret, self.timeout_ms(where))


class AlertsTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The [alerts] table: which rules are in force, and who is told."""

    every: Number = USUAL_EVERY_MS / 1000
    rules: dict[str, bool | RuleTable] = {}
    webhooks: dict[str, WebhookTable] = {}

    def checked(self, where: str) -> AlertsTable:
        """The same; what makes no sense is refused by name."""
        for name, webhook in self.webhooks.items():
            checked_name(name, what=f"{where}: the name of a webhook")
            webhook.checked(f"{where}: webhook {name}")
        self.published(where)
        return self

    def published(self, where: str = "[alerts]") -> AlertRules:
        """What the store keeps of it: all but addresses and secrets."""
        every_ms = to_ms(self.every, what=f"{where}: every")
        if not LEAST_EVERY_MS <= every_ms <= LONGEST_EVERY_MS:
            span = f"{text_of_ms(LEAST_EVERY_MS)} to {text_of_ms(LONGEST_EVERY_MS)}"
            raise InvalidOption(f"{where}: every={self.every!r} is out of range", fix=span)
        webhooks = tuple(WebhookRef(name, _names(one.rules)) for name, one in sorted(self.webhooks.items()))
        return AlertRules(tuple(self._rules(where)), webhooks, every_ms)

    def _rules(self, where: str) -> Iterator[Rule]:
        for name in NAMES:
            said = self.rules.get(name, True)
            table = said if isinstance(said, RuleTable) else RuleTable(enabled=said)
            if table.enabled:
                yield table.rule(name, f"{where}: rule {name}")

    def receivers(self, environ: Mapping[str, str]) -> dict[str, Webhook]:
        """The webhooks that this process can tell, by name."""
        found = {name: table.webhook(name, environ) for name, table in self.webhooks.items()}
        return {name: webhook for name, webhook in found.items() if webhook is not None}


def refuse_unknown_alerts(table: Any, where: str) -> None:
    """Refuse a key of the table that means nothing, at every level of it."""
    if not isinstance(table, Mapping):
        return
    refuse_unknown(table, AlertsTable.__struct_fields__, where)
    rules, webhooks = table.get("rules"), table.get("webhooks")
    if isinstance(rules, Mapping):
        refuse_unknown(rules, NAMES, f"{where} rules")
        for name, rule in rules.items():
            if isinstance(rule, Mapping):
                refuse_unknown(rule, RuleTable.__struct_encode_fields__, f"{where} rule {name}")
    if isinstance(webhooks, Mapping):
        for name, webhook in webhooks.items():
            if isinstance(webhook, Mapping):
                refuse_unknown(webhook, WebhookTable.__struct_fields__, f"{where} webhook {name}")


def _names(said: list[str]) -> tuple[RuleName, ...]:
    return tuple(name for name in NAMES if name in said)


def _time(value: Number | UnsetType, usual_ms: int, what: str) -> int:
    return usual_ms if value is UNSET else to_ms(value, what=what)


def _counted(value: int, what: str) -> int:
    if isinstance(value, bool) or value < 1:
        raise InvalidOption(f"{what}={value!r} is not a count", fix="write a whole number from 1 on")
    return value


def _number(rule: Rule, value: Number, what: str) -> float:
    """A number of the rule's measure, as it is stored."""
    if rule.measure == "time":
        return float(to_ms(value, what=what))
    if isinstance(value, bool | str) or value <= 0:
        raise InvalidOption(f"{what}={value!r} is not a number above zero", fix=f"such as {rule.at_least:g}")
    if rule.measure == "share" and value > 1:
        raise InvalidOption(f"{what}={value!r} is more than all", fix="half of the attempts are 0.5")
    return float(value)
