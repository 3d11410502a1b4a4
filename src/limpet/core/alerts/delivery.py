"""Decides what the job that tells an alert is, and what its request says: the body, the key, the signature."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.alerts.book import Notice
from limpet.core.alerts.rule import DEFAULTS, NAMES, fix_of
from limpet.core.alerts.webhook import Webhook
from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.text.duration import iso
from limpet.core.version import VERSION

QUEUE: Final = "limpet.alerts"  # the jobs that tell alerts, and only they
TASK: Final = "limpet.alert"

# Up to two hours of trying: where a receiver is away for longer, its jobs wait as dead letters.
POLICY: Final = Policy(
    attempts=15, base_ms=5_000, factor=2.0, cap_ms=900_000, timeout_ms=30_000, hard_timeout_ms=60_000, max_held=1_000
)

TIMESTAMP: Final = "Limpet-Timestamp"
SIGNATURE: Final = "Limpet-Signature"


class Delivery(Struct, frozen=True):
    """The arguments of the job: what is told, and to which webhook."""

    webhook: str
    notice: Notice


class Call(Struct, frozen=True):
    """One request to a receiver."""

    headers: dict[str, str]
    body: bytes


def refuse_alerts(queue: str) -> None:
    """Refuse jobs of programs in the queue of alerts: what is told there is believed."""
    if queue == QUEUE:
        raise InvalidOption(f"the queue {QUEUE!r} is for alerts alone", fix="give the job another queue")


def capability(webhook: str) -> str:
    """What a process has that knows the address of a webhook: only such a one takes its jobs."""
    return f"webhook:{webhook}"


def delivery_job(notice: Notice, webhook: str, *, after: tuple[bytes, ...] = ()) -> Job:
    """The job that tells a notice to one webhook; it waits for what was to be told `after` which it comes."""
    lane = Lane(QUEUE, TASK, priority=3, needs=(capability(webhook),))
    args = msgspec.json.encode(Delivery(webhook, notice))
    return Job(notice.job_id(webhook), lane, POLICY, args, after=after, if_parent_fails="run")


def call_of(webhook: Webhook, notice: Notice, key: bytes, namespace: str, now_ms: int) -> Call:
    """What is sent: the same body and key with every attempt; the timestamp, and so the signature, is of this one."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"limpet/{VERSION}",
        "Idempotency-Key": id_text(key),
    }
    if webhook.format == "slack":
        return Call(headers, msgspec.json.encode({"text": slack_text(notice, namespace)}))
    body = msgspec.json.encode({"id": id_text(key), "namespace": namespace, **facts_of(notice)})
    if webhook.secret:
        at_s = str(now_ms // 1000)
        headers |= {TIMESTAMP: at_s, SIGNATURE: signature(webhook.secret, at_s, body)}
    return Call(headers, body)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What proves the sender, and the instant: a receiver refuses an old one, and one that it computes otherwise.

    >>> signature("secret", "1700000000", b"{}")[:20]
    'sha256=b8569b78799ff'
    """
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()


def facts_of(notice: Notice) -> dict[str, object]:
    """A notice as JSON has it."""
    rule = next((DEFAULTS[name] for name in NAMES if name == notice.rule), None)
    return {
        "state": notice.state,
        "rule": notice.rule,
        "subject": notice.subject,
        "queue": notice.queue,
        "text": notice.text,
        "number": notice.number,
        "measure": None if rule is None else rule.measure or None,
        "fix": None if rule is None else fix_of(rule.name, notice.subject),
        "fired_at": iso(notice.fired_ms),
        "resolved_at": iso(notice.at_ms) if notice.state == "resolved" else None,
    }


def slack_text(notice: Notice, namespace: str) -> str:
    """The same in one message, in which nothing is a link or a mention."""
    words = {"firing": ":red_circle: firing", "resolved": ":large_green_circle: resolved", "test": ":wave: test"}
    rule = next((name for name in NAMES if name == notice.rule), None)
    told = f"{words[notice.state]}: {_plain(notice.text)} [{_plain(namespace)}]"
    return told if rule is None or notice.state != "firing" else f"{told}\n{_plain(fix_of(rule, notice.subject))}"


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
