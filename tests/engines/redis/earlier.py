"""A worker of an earlier release, let loose on a namespace that this one has written to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.servers.redis import RedisServer

EARLIER = """
import asyncio, sys
from limpet.core.gate import GateRule
from limpet.core.view import Retention
from limpet.stores.open import open_store
from limpet.testing.bench import Bench
from limpet.testing.harness import Clock

async def main():
    url, namespace, now_ms, step = sys.argv[1:]
    bench = Bench(open_store(url, namespace), Clock(int(now_ms)))
    hand = bench.hand("earlier")
    if step == "run":
        while jobs := await hand.claim(100):
            await hand.succeed(*jobs, result=b"1")
        print(*(job.id.hex() for job in await bench.everything()))
    elif step == "join":
        parents = await bench.add_many(3)
        print(*(id.hex() for id in (*parents, await bench.add(after=tuple(parents)))))
    elif step == "limited":
        await bench.declare(GateRule("limit:r", interval_us=1_000_000, burst=5))
        ids = await bench.add_many(4, limits=("r",), cost=2, tags=("old",))
        await hand.succeed(await hand.take())
        print(*(id.hex() for id in ids))
    else:
        await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms)
    await bench.check_books()
    await bench.store.close()

asyncio.run(main())
"""


def let_work(earlier: Path, server: RedisServer, namespace: str, now_ms: int, step: str) -> Sequence[bytes]:
    """Let a worker of the earlier release do something; the ids that it printed."""
    command = [sys.executable, "-c", EARLIER, server.url, namespace, str(now_ms), step]
    env = {"PYTHONPATH": str(earlier / "src")}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    return [bytes.fromhex(word) for word in answer.stdout.split()]
