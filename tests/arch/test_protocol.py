"""The protocol of a store stays small: later features use controls and logs, not new verbs."""

from __future__ import annotations

import inspect

from limpet.stores.base import Broadcasts, Examines, Joins, Migrates, Store

LIFE = {"open", "close"}  # what every connection has; no verb about jobs


def verbs(protocol: type) -> set[str]:
    return {name for name, member in vars(protocol).items() if inspect.iscoroutinefunction(member)}


def test_a_store_has_at_most_thirty_verbs() -> None:
    assert len(verbs(Store) - LIFE) <= 30, sorted(verbs(Store) - LIFE)


def test_what_only_some_engines_can_do_is_no_verb_of_a_store() -> None:
    assert not verbs(Store) & (verbs(Joins) | verbs(Examines) | verbs(Migrates) | verbs(Broadcasts))
