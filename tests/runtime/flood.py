"""A flood of urgent jobs with a few less urgent ones behind it, and the order in which a worker runs them."""

from __future__ import annotations

from typing import Any

from tests.runtime.running import Bench

FLOOD = {"low": 4, "normal": 4, "high": 60}


async def flooded(
    bench: Bench,
    settings: dict[str, Any],
    levels: dict[str, int] = FLOOD,
    *,
    threads: bool = False,
    **options: Any,
) -> str:
    """The first letters of the priorities of so many jobs of each, in the order in which they ran."""
    ran: list[str] = []

    async def in_loop(level: str) -> None:
        ran.append(level[0])

    def in_thread(level: str) -> None:
        ran.append(level[0])

    task = bench.task(in_thread if threads else in_loop, **options)
    for level, count in levels.items():
        for _ in range(count):
            await bench.put(task, {"level": level}, priority=level)
    await bench.drain(settings)
    return "".join(ran)
