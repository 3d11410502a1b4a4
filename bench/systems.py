"""Names what can be measured on each engine: ours in its settings, the floor, and the peers that are installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Final

from bench import ground
from bench.driver import ROOT, System
from bench.ground import Ground
from bench.plan import MEASURES
from bench.targets import FLOOR, Engine

_OURS: Final = (sys.executable, "-m", "bench.ours")
_EVERY: Final = frozenset(measure.name for measure in MEASURES)
_WRITES: Final = frozenset({"drain", "bulk", "single", "callers", "latency"})  # where the disk can be felt
_LEAST: Final = frozenset({"drain", "single", "latency"})  # what every peer can do
_SLOW: Final = 0.2  # the Python peers are laid out a fifth of the jobs, or a run would take minutes


def systems(engine: Engine, url: str | None = None) -> list[System]:
    """Ours first, then the floor; peers as far as `make bench-peers` has installed them."""
    if url is not None:
        there = ground.elsewhere(url)
        return [System(url, _OURS, _EVERY, there), _floor(there)]
    peers = {"sqlite": _sqlite_peers, "redis": _redis_peers, "postgres": _postgres_peers}
    return [*_ours(engine), *peers[engine]()]


def _ours(engine: Engine) -> Iterator[System]:
    """The floor is of the setting that the verdicts are on, the first."""
    if engine == "sqlite":
        yield System("sync=normal", _OURS, _EVERY, ground.sqlite("?sync=normal"))
        yield System("sync=full", _OURS, _WRITES, ground.sqlite("?sync=full"))
        yield _floor(ground.sqlite("?sync=normal"))
    elif engine == "postgres":
        yield System("postgres-16", _OURS, _EVERY, ground.postgres("postgres-16"))
        yield System("postgres-18", _OURS, _WRITES, ground.postgres("postgres-18"))
        yield _floor(ground.postgres("postgres-16"))
    else:
        yield System("fsync=everysec", _OURS, _EVERY, ground.redis("everysec"))
        yield System("fsync=always", _OURS, _WRITES, ground.redis("always"))
        yield _floor(ground.redis("everysec"))


def _floor(place: Ground) -> System:
    command = (sys.executable, "-m", "bench.floor")
    return System(FLOOR, command, frozenset({"latency", "single"}), place, role="floor")


def _sqlite_peers() -> Iterator[System]:
    if command := _python("huey"):
        yield System("huey", command, _LEAST, ground.sqlite(), role="peer", scale=_SLOW)


def _redis_peers() -> Iterator[System]:
    everysec = ground.redis("everysec")
    shared = _LEAST | {"waiting", "memory"}
    peers = (
        ("sidekiq", _program(".bench/sidekiq/ruby", "with_sidekiq.rb"), shared | {"bulk"}, 1),
        ("bullmq", _bullmq(), shared | {"bulk", "callers"}, 1),
        ("taskiq", _python("taskiq"), shared | {"callers"}, _SLOW),
        ("huey", _python("huey"), shared, _SLOW),
        ("celery", _python("celery"), shared, _SLOW),
        ("dramatiq", _python("dramatiq"), shared, _SLOW),
        ("arq", _python("arq"), shared | {"callers"}, _SLOW),
        # It runs one job after another, so it is left out where jobs wait side by side.
        ("rq", _python("rq"), _LEAST | {"bulk", "memory"}, _SLOW / 4),
    )
    for name, command, measures, scale in peers:
        if command is not None:
            yield System(name, command, measures, everysec, role="peer", scale=scale)


def _postgres_peers() -> Iterator[System]:
    sixteen = ground.postgres("postgres-16")
    measures = _LEAST | {"bulk", "callers", "waiting"}
    if pgqueuer := _python("pgqueuer"):
        yield System("pgqueuer", pgqueuer, measures, sixteen, role="peer")
    if procrastinate := _python("procrastinate"):
        yield System("procrastinate", procrastinate, measures, sixteen, role="peer", scale=_SLOW / 4)


def _python(peer: str) -> tuple[str, ...] | None:
    return _program(f".bench/{peer}/bin/python", f"with_{peer}.py")


def _bullmq() -> tuple[str, ...] | None:
    node = shutil.which("node")
    installed = (ROOT / ".bench" / "bullmq" / "node_modules" / "bullmq").exists()
    return _program(node, "with_bullmq.mjs") if node and installed else None


def _program(interpreter: str, adapter: str) -> tuple[str, ...] | None:
    program = ROOT / interpreter
    return (str(program), str(ROOT / "bench" / "peers" / adapter)) if program.exists() else None
