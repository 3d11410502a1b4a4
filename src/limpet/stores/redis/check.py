"""Says whether the durability that was asked for is the one the server has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Finding
from limpet.stores.redis.client import Client

OLDEST: Final = (6, 2)
NEARLY_FULL: Final = 0.9

logger = logging.getLogger("limpet.stores.redis")


async def findings(client: Client) -> list[Finding]:
    """Version, role, log, flushing, eviction and replicas, as found."""
    facts, fsync, save, replicas = await asyncio.gather(
        _info(client),
        _setting(client, "appendfsync"),
        _setting(client, "save"),
        _setting(client, "min-replicas-to-write"),
    )
    return [
        _version(facts),
        *_role(facts),
        *_log(facts, fsync, save),
        *_memory(facts),
        *_replicas(facts, replicas),
    ]


def startup(found: Sequence[Finding], *, strict: bool) -> None:
    """Warn of what may lose acknowledged jobs; with `strict`, refuse to start."""
    bad = sorted((finding for finding in found if finding.level != "ok"), key=lambda finding: finding.level)
    if bad and strict:
        first = bad[0]  # "error" sorts before "warning"
        raise StoreError(f"refused, because strict=1 and {first.text}", verb="open", fix=first.fix)
    for finding in bad:
        logger.log(logging.ERROR if finding.level == "error" else logging.WARNING, "%s (%s)", finding.text, finding.fix)


async def _info(client: Client) -> dict[str, str]:
    text: bytes = await client.call("check", "INFO")
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


async def _setting(client: Client, name: str) -> str | None:
    """A setting of the server; None where CONFIG is forbidden or not there, as with many hosted servers."""
    try:
        answer = await client.call("check", "CONFIG", "GET", name)
    except StoreError as error:
        if error.retryable:
            raise
        return None
    return answer[1].decode() if answer else None


def _version(facts: dict[str, str]) -> Finding:
    version = facts.get("redis_version", "0")
    name = "Redis"
    if "valkey_version" in facts:  # it also names the Redis that it is compatible with
        name, shown = "Valkey", facts["valkey_version"]
    else:
        shown = version
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        return Finding("error", "version", f"{name} {shown} is older than Redis 6.2", "upgrade the server")
    return Finding("ok", "version", f"{name} {shown}")


def _role(facts: dict[str, str]) -> list[Finding]:
    if facts.get("role") == "master":
        return []
    return [
        Finding("error", "role", "the server is a replica and takes no changes", "name its master, or the Sentinels")
    ]


def _log(facts: dict[str, str], fsync: str | None, save: str | None) -> list[Finding]:
    if facts.get("aof_enabled") != "1":
        text = "the server has no AOF: a crash loses acknowledged jobs"
        level = "error"
        if save:
            level, text = "warning", f"{text}, all since its last snapshot"
        return [Finding(level, "log", text, _turn_on(facts))]  # type: ignore[arg-type]  # one of two words
    found = [Finding("ok", "log", "the server logs every change (AOF)")]
    if facts.get("aof_last_write_status", "ok") != "ok":
        found = [Finding("error", "log", "the server could not write its AOF", "free some space on its disk")]
    return [*found, _flush(fsync)]


def _turn_on(facts: dict[str, str]) -> str:
    """How a log is begun without a loss: a server that is started with one and finds none begins empty."""
    first = "while it runs: CONFIG SET appendonly yes, then wait until INFO says aof_rewrite_in_progress:0"
    if facts.get("config_file"):
        return f"{first}, then CONFIG REWRITE; do not restart it before, it would begin empty"
    return f"{first}; from then on start it with --appendonly yes (not before, it would begin empty)"


def _flush(fsync: str | None) -> Finding:
    if fsync == "always":
        return Finding("ok", "sync", "every change reaches the disk before it is acknowledged (appendfsync always)")
    if fsync == "everysec":
        text = "appendfsync everysec: a crash of the server loses the last moments, two seconds at most"
        return Finding("ok", "sync", text)
    if fsync is None:
        text = "how often the server flushes its AOF cannot be seen, because CONFIG GET is forbidden"
        return Finding("warning", "sync", text, "permit CONFIG GET, or see that appendfsync is everysec or always")
    text = f"appendfsync {fsync}: a power cut may lose half a minute of acknowledged jobs"
    return Finding("warning", "sync", text, "set appendfsync everysec, or always")


def _memory(facts: dict[str, str]) -> list[Finding]:
    policy, limit = facts.get("maxmemory_policy", ""), int(facts.get("maxmemory", "0"))
    if policy != "noeviction":
        text = f"the server may drop jobs when its memory is full (maxmemory-policy {policy})"
        if limit:
            return [Finding("error", "eviction", text, "set maxmemory-policy noeviction")]
        text = f"{text}, once it has a maxmemory"
        return [Finding("warning", "eviction", text, "set maxmemory-policy noeviction")]
    found = [Finding("ok", "eviction", "the server drops nothing when its memory is full (noeviction)")]
    used = int(facts.get("used_memory", "0"))
    if limit and used > limit * NEARLY_FULL:
        text = f"{used * 100 // limit} % of the server's maxmemory are used; at 100 % nothing can be enqueued"
        found.append(Finding("warning", "memory", text, "raise maxmemory, or shorten the retention"))
    return found


def _replicas(facts: dict[str, str], least: str | None) -> list[Finding]:
    count = int(facts.get("connected_slaves", "0"))
    if not count or least not in ("0", None):
        return []
    text = "a failover may lose the last acknowledged jobs, because changes need no replica to be accepted"
    return [Finding("warning", "replicas", text, "set min-replicas-to-write 1 on the server")]
