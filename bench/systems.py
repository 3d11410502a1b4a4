"""Names what can be measured on each engine: ours in its settings, and the peers that are installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Final

from bench import ground
from bench.driver import ROOT, System
from bench.plan import MEASURES
from bench.targets import Engine

_OURS: Final = (sys.executable, "-m", "bench.ours")
_EVERY: Final = frozenset(measure.name for measure in MEASURES)
_WRITES: Final = frozenset({"drain", "bulk", "single", "callers", "latency"})  # where the disk can be felt
_SLOW: Final = 0.2  # the Python peers are laid out a fifth of the jobs, or a run would take minutes


def systems(engine: Engine, url: str | None = None) -> list[System]:
    """Ours first; peers as far as `make bench-peers` has installed them."""
    if url is not None:
        return [System(url, _OURS, _EVERY, ground.elsewhere(url))]
    peers = {"sqlite": _sqlite_peers, "redis": _redis_peers, "postgres": _postgres_peers}
    return [*_ours(engine), *peers[engine]()]


def _ours(engine: Engine) -> Iterator[System]:
    if engine == "sqlite":
        yield System("sync=normal", _OURS, _EVERY, ground.sqlite("?sync=normal"))
        yield System("sync=full", _OURS, _WRITES, ground.sqlite("?sync=full"))
    elif engine == "postgres":
        yield System("postgres-16", _OURS, _EVERY, ground.postgres("postgres-16"))
        yield System("postgres-18", _OURS, _WRITES, ground.postgres("postgres-18"))
    else:
        yield System("fsync=everysec", _OURS, _EVERY, ground.redis("everysec"))
        yield System("fsync=always", _OURS, _WRITES, ground.redis("always"))


def _sqlite_peers() -> Iterator[System]:
    if command := _python("huey"):
        measures = frozenset({"drain", "single", "latency"})
        yield System("huey", command, measures, ground.sqlite(), peer=True, scale=_SLOW)


def _redis_peers() -> Iterator[System]:
    everysec = ground.redis("everysec")
    node = shutil.which("node")
    if node and (ROOT / ".bench" / "bullmq" / "node_modules" / "bullmq").exists():
        measures = frozenset({"drain", "bulk", "single", "callers", "latency", "waiting", "memory"})
        command = (node, str(ROOT / "bench" / "peers" / "with_bullmq.mjs"))
        yield System("bullmq", command, measures, everysec, peer=True)
    shared = frozenset({"drain", "single", "latency", "waiting", "memory"})
    if taskiq := _python("taskiq"):
        yield System("taskiq", taskiq, shared | {"callers"}, everysec, peer=True, scale=_SLOW)
    if huey := _python("huey"):
        yield System("huey", huey, shared, everysec, peer=True, scale=_SLOW)


def _postgres_peers() -> Iterator[System]:
    sixteen = ground.postgres("postgres-16")
    measures = frozenset({"drain", "bulk", "single", "callers", "latency", "waiting"})
    if pgqueuer := _python("pgqueuer"):
        yield System("pgqueuer", pgqueuer, measures, sixteen, peer=True)
    if procrastinate := _python("procrastinate"):
        yield System("procrastinate", procrastinate, measures, sixteen, peer=True, scale=_SLOW / 4)


def _python(peer: str) -> tuple[str, ...] | None:
    program = ROOT / ".bench" / peer / "bin" / "python"
    return (str(program), str(ROOT / "bench" / "peers" / f"with_{peer}.py")) if program.exists() else None
