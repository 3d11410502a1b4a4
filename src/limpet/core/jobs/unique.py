"""Decides the idempotency key of a job: given, made from its content, or computed by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import OnDuplicate, Unique
from limpet.core.jobs.state import LIVE, State
from limpet.core.tasks.payload import canonical
from limpet.core.text.storable import is_storable

UniqueOption = bool | str | Callable[[Mapping[str, object]], str] | None

MAX_UNIQUE_CHARS = 512


def content_key(task: str, args: bytes | Mapping[str, object]) -> str:
    """The same text in every process for the same task and arguments, however they were passed."""
    digest = sha256(task.encode())
    digest.update(b"\0")
    digest.update(canonical(args))
    return digest.hexdigest()


def unique_of(
    option: UniqueOption,
    *,
    task: str,
    values: Mapping[str, object],
    for_ms: int | None = None,
    states: frozenset[State] | None = None,
    on_duplicate: OnDuplicate = "existing",
) -> Unique | None:
    """The key that a job will hold, or None when it asks for none."""
    if option is None or option is False:
        return None
    if option is True:
        key = content_key(task, values)
    else:
        key = option if isinstance(option, str) else option(values)
        if not isinstance(key, str) or not key or len(key) > MAX_UNIQUE_CHARS or not is_storable(key):
            raise InvalidOption(
                f"the unique key of {task!r} is {key!r:.80}",
                fix=f"a key is text of 1 to {MAX_UNIQUE_CHARS} whole characters without NUL; "
                "unique=True makes one from the arguments",
            )
    return Unique(key, for_ms, LIVE if states is None else states, on_duplicate)
