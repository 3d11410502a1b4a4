"""Runs one measure in this process: `python -m bench.ours MEASURE '{"url": "redis://127.0.0.1:6379/{n}", ...}'`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.ours.claims import fairness, finished, ineligible
from bench.ours.flows import wide
from bench.ours.place import Place
from bench.ours.throughput import Figures, bulk, callers, drain, memory, single, steady, waiting
from bench.ours.waits import idle, latency, recovery, urgent
from bench.versions import beneath, installed
from limpet.runtime.child import run_loop

IN_PROCESS: Final[dict[str, Callable[..., Awaitable[Figures]]]] = {
    "drain": drain,
    "steady": steady,
    "bulk": bulk,
    "single": single,
    "callers": callers,
    "waiting": waiting,
    "fairness": fairness,
    "finished": finished,
    "memory": memory,
    "wide": wide,
}
ACROSS: Final[dict[str, Callable[..., Awaitable[Figures]]]] = {
    "latency": latency,
    "idle": idle,
    "urgent": urgent,
    "recovery": recovery,
}


async def measured(name: str, template: str, options: dict[str, Any]) -> Figures:
    """One run of one measure."""
    if name == "ineligible":
        return await ineligible(template, **options)
    place = Place(template)
    try:
        async with place.opened():
            return await (IN_PROCESS | ACROSS)[name](place, **options)
    finally:
        place.leave()


def main(name: str, text: str) -> None:
    """Print the figures of one run as one line of JSON."""
    options = json.loads(text)
    if name == "versions":
        print(json.dumps(installed("limpet") | beneath(options["engine"])))
        return
    # Handlers in other processes answer by datagram, which uvloop's sock_recv does not take.
    run = asyncio.run if name in ACROSS else run_loop
    print(json.dumps(run(measured(name, options.pop("url"), options))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
