"""The records of what an error means for its job, and by which rule that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

Kind = Literal["transient", "permanent", "timeout", "rate_limited", "spent", "cancelled"]
# What a person may say of an error; "cancelled" is for what the event loop raises.
SAYABLE: Final[tuple[Kind, ...]] = ("transient", "permanent", "timeout", "rate_limited", "spent")

# What each kind means, for people.
MEANING: Final[dict[Kind, str]] = {
    "transient": "another try may help",
    "permanent": "no retry can help",
    "timeout": "it took too long; another try may help",
    "rate_limited": "the provider asks for a lower rate",
    "spent": "the account has no money or quota left",
    "cancelled": "something inside the handler was cancelled; another try may help",
}


class Verdict(Struct, frozen=True):
    """What an error means; `retry_after_ms` if the answer named a time, `key` the limit it is about."""

    kind: Kind
    retry_after_ms: int | None = None
    key: str | None = None


Classifier = Callable[[BaseException], Verdict | Kind | None]

By = Literal["override", "remembered", "mistake", "code", "status", "sqlstate", "name", "default"]


class Rule(Struct, frozen=True):
    """How an error was recognised: by what, and what that was (a code, a status, a class); `place` of an override."""

    by: By
    what: str = ""
    place: int = -1


class Judgement(Struct, frozen=True):
    """A verdict, the rule that gave it, and the error that the rule is about: the one raised, or one behind it."""

    verdict: Verdict
    rule: Rule
    of: BaseException
