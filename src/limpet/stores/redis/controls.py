"""Keeps named records and the two logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from limpet.core.endings.hook import KIND, read_hook
from limpet.core.jobs.view import Control, Entry, Retention
from limpet.stores.redis.enqueue import definition, policy_words
from limpet.stores.redis.fields import CONTROL
from limpet.stores.redis.keys import K
from limpet.stores.redis.scripts import call_name, script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

LINES: Final = 1_000  # lines that one step adds to a log

_encode = msgspec.msgpack.Encoder().encode
_decode_line = msgspec.msgpack.Decoder(tuple[int, str, str, bytes | None, str, bytes]).decode


# -- named records


async def put_control(client: Client, key: bytes, control: Control, expect: int | None) -> Control | None:
    """Write a named record, over the version that the caller saw; None when another is there."""
    weight: int | str = ""
    if control.kind == "weight":
        weight = max(1, msgspec.json.decode(control.value, type=int))
    hook = _hook(control) if control.kind == KIND else ()
    words = (control.kind, control.name, control.value, "" if expect is None else expect, weight, *hook)
    version = await client.script("put_control", script("controls_put"), key, ("", call_name(), *words))
    return None if version is None else Control(control.kind, control.name, control.value, version)


def _hook(control: Control) -> tuple[bytes, ...]:
    """What scripts must know of a hook to make its jobs; nothing of one that is for no state."""
    hook = read_hook(control.value)
    if hook is None or not hook.states:
        return ()
    codes = "".join(str(state.code) for state in hook.states).encode()
    return (codes, _encode((hook.tasks, hook.queues)), *definition(hook.lane), *policy_words(hook.policy))


async def controls(client: Client, key: bytes, kind: str) -> list[Control]:
    """All records of a kind, by name."""
    flat: list[bytes] = await client.call("controls", "HGETALL", K.controls.under(key, kind.encode()))
    found = [
        Control(kind, name.decode(), value[CONTROL.size :], int.from_bytes(value[: CONTROL.size], "big"))
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    ]
    return sorted(found, key=lambda control: control.name)


# -- logs


async def append(client: Client, key: bytes, entries: Sequence[Entry]) -> None:
    """Add lines to the logs they name."""
    for start in range(0, len(entries), LINES):
        words: list[bytes | str | int] = ["", call_name()]
        for entry in entries[start : start + LINES]:
            line = (entry.at_ms, entry.kind, entry.actor, entry.job, entry.reason, entry.data)
            words += (entry.log, entry.at_ms, _encode(line))
        await client.script("append", script("controls_append"), key, words)


async def read(
    client: Client, key: bytes, log: Literal["audit", "event"], after: int, limit: int, *, newest: bool
) -> list[Entry]:
    """Lines of a log that come after one, oldest first: the first of them, or the newest."""
    stream = K.logs.under(key, log.encode())
    first, last = f"({max(0, after)}-0", "+"
    found: list[Any]
    if newest:
        found = await client.call("read", "XREVRANGE", stream, last, first, "COUNT", limit)
        found.reverse()
    else:
        found = await client.call("read", "XRANGE", stream, first, last, "COUNT", limit)
    return [Entry(log, *_decode_line(fields[3]), seq=int(seq.partition(b"-")[0])) for seq, fields in found]


async def prune_logs(client: Client, key: bytes, retention: Retention, limit: int, now_ms: int | None) -> int:
    """Remove lines that have outlived their time, at most `limit` of each log; how many."""
    keeps = ["" if keep is None else keep for keep in (retention.audit_ms, retention.event_ms)]
    words = ("" if now_ms is None else now_ms, limit, *keeps, retention.events)
    removed: int = await client.script("prune", script("prune_logs"), key, words)
    return removed
