"""Decides how a job looks in a folder of JSON files as agents keep it, and what such an entry means as a job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from limpet.core.access.request_key import hash_of
from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_bytes, id_of, id_text
from limpet.core.jobs.job import LEAST_URGENT, PRIORITIES
from limpet.core.jobs.meta import whole_meta
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.record import content
from limpet.core.text.duration import iso

META: Final = "folder"  # what an imported job keeps of its entry, in its meta
PAYLOAD: Final = "payload"  # the argument that a payload which is no object becomes
FILES: Final[dict[str, frozenset[State]]] = {
    "pending": frozenset({State.blocked, State.scheduled, State.ready}),
    "in-progress": frozenset({State.running}),
    "completed": frozenset({State.succeeded}),
    "cancelled": frozenset({State.cancelled}),
    "dead-letter": frozenset({State.dead}),
}
FINISHED: Final = ("completed", "cancelled", "dead-letter")
# Of an entry, what a job has no field for. It is small: a meta has 4 KiB.
KEPT: Final = ("id", "createdAt", "completedAt", "claimedBy", "claimedAt", "retries")


def entry_of(view: JobView, names: Mapping[bytes, str], holder: str | None) -> dict[str, Any]:
    """The entry of a job; `names` are what other jobs are called in the folder."""
    kept = whole_meta(view.meta).get(META, {})
    args = content(view.args)
    policy, finished = view.policy, view.finished_at_ms
    claimed_ms = view.claimed_at_ms if holder or finished else None
    return {
        "id": names[view.id],
        "idempotencyKey": view.unique,
        "type": view.lane.task,
        "priority": LEAST_URGENT + 1 - view.lane.priority,
        "dependencies": [names.get(parent, id_text(parent)) for parent in view.after],
        "payload": args[PAYLOAD] if kept.get("bare") and isinstance(args, dict) else args,
        "createdAt": kept.get("createdAt") or iso(view.enqueued_at_ms),
        "claimedBy": holder or (kept.get("claimedBy") if finished else None),
        "claimedAt": kept.get("claimedAt") if kept.get("completedAt") else _iso(claimed_ms),
        "timeout": None if policy.timeout_ms is None else policy.timeout_ms // 1000,
        "retries": kept.get("retries", 0) + max(0, view.attempt - 1),
        "maxRetries": policy.attempts - 1,
        "backoffSeconds": policy.base_ms / 1000,
        "lastError": ": ".join(filter(None, (view.error_type, view.reason))) or None,
        "completedAt": kept.get("completedAt") or _iso(finished),
        "result": content(view.result),
    }


def name_of(view: JobView) -> str:
    """What a job is called in a folder: as the folder that it came from called it."""
    said = whole_meta(view.meta).get(META, {}).get("id")
    return said if isinstance(said, str) else id_text(view.id)


class Entry:
    """One entry of a file, as far as it makes sense; InvalidOption says where it does not."""

    def __init__(self, raw: object) -> None:
        if not isinstance(raw, Mapping):
            raise InvalidOption(f"{_shown(raw)} is no entry", fix='write an object with "id" and "type"')
        self.raw = raw
        self.name = self._text("id")
        self.type = self._text("type")
        self.created_ms = _ms(raw.get("createdAt"))
        self.dependencies = self._dependencies()

    @property
    def id(self) -> bytes:
        """The id of its job: the same whenever this entry is imported."""
        try:
            return id_bytes(self.name)
        except InvalidOption:
            field = int(hash_of(META, self.name)[-19:], 16)
            return id_of(self.created_ms or 0, field & ((1 << 74) - 1))

    @property
    def priority(self) -> int:
        """1 to 10 with 10 as the most urgent, or a word, as a priority here."""
        given = self.raw.get("priority", 5)
        if isinstance(given, str) and given in PRIORITIES:
            return PRIORITIES[given]
        try:
            return max(0, min(LEAST_URGENT, LEAST_URGENT + 1 - round(float(given))))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidOption(
                f"priority {_shown(given)} is none", fix="write 1 to 10; 10 is the most urgent"
            ) from error

    @property
    def args(self) -> dict[str, Any]:
        """The arguments; a payload that is no object becomes one of them."""
        payload = self.raw.get("payload")
        return dict(payload) if isinstance(payload, Mapping) else {} if payload is None else {PAYLOAD: payload}

    @property
    def error(self) -> str:
        """Why it failed last."""
        return str(self.raw.get("lastError") or self.raw.get("error") or "it died before it was imported")

    @property
    def result(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self.raw.get("result"))

    def options(self) -> dict[str, Any]:
        """What the entry asks for, in the words of `options()`; what it does not say is as its type says."""
        asked: dict[str, Any] = {"priority": self.priority, "meta": {META: self._meta()}}
        if isinstance(key := self.raw.get("idempotencyKey"), str) and key:
            asked["unique"] = key
        if (timeout := self._number("timeout")) is not None and timeout > 0:
            asked["timeout"] = timeout
        retries, backoff = self._number("maxRetries"), self._number("backoffSeconds")
        if retries is not None or backoff is not None:
            asked["retries"] = (5 if retries is None else int(retries) + 1, 60 if backoff is None else backoff)
        return asked

    def _meta(self) -> dict[str, Any]:
        kept = {name: self.raw[name] for name in KEPT if self.raw.get(name) not in (None, "", 0)}
        kept = {name: value if isinstance(value, int) else str(value)[:300] for name, value in kept.items()}
        payload = self.raw.get("payload")
        if payload is not None and not isinstance(payload, Mapping):
            kept["bare"] = True
        return kept

    def _text(self, name: str) -> str:
        value = self.raw.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip() or len(value) > 200:
            raise InvalidOption(f"{name} is {_shown(value)}", fix=f"give each entry a {name} of up to 200 characters")
        return value

    def _number(self, name: str) -> float | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise InvalidOption(f"{name} is {_shown(value)}", fix="write a number of 0 or more")
        return value

    def _dependencies(self) -> tuple[str, ...]:
        given = self.raw.get("dependencies") or ()
        if not isinstance(given, list | tuple) or not all(isinstance(each, str | int) for each in given):
            raise InvalidOption(f"dependencies is {_shown(given)}", fix="write a list of ids")
        return tuple(dict.fromkeys(map(str, given)))


def _shown(value: object) -> str:
    return repr(value)[:80]


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _ms(value: object) -> int | None:
    """An instant as such files write it; None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
