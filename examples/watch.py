"""A board of what happens: it counts jobs by state from live events, beside a worker that knows nothing of it.

Run it: python examples/watch.py
"""

import asyncio
from collections import Counter

from limpet import Dead, Limpet
from limpet.records import EventGap, JobCounts, JobEvent

app = Limpet("sqlite://")
ORDERS = 20


@app.task(name="ship", queue="orders", retry=None)
async def ship(order: int) -> None:
    if order == 13:
        raise Dead("the house is empty")


async def board(come: Counter[str]) -> None:
    """Count until every order has ended. After a gap the counters of the store are right, so they are read again."""
    async with app.events("queue:orders") as events:
        listening.set()
        async for event in events:
            match event:
                case JobEvent():
                    come[event.state] += 1
                case JobCounts():
                    come[event.state] += event.count
                case EventGap():
                    now = await app.store.count()
                    come.update({state.value: count for (_, _, state), count in now.now.items()})
            if come["succeeded"] + come["dead"] >= ORDERS:
                return


async def main() -> None:
    come: Counter[str] = Counter()
    async with app:
        watching = asyncio.create_task(board(come))
        await listening.wait()
        await app.enqueue_many(ship.job(order) for order in range(ORDERS))
        await app.work(until_empty=True)
        await watching
    for state in ("ready", "running", "succeeded", "dead"):
        print(f"{state}: {come[state]}")


listening = asyncio.Event()

if __name__ == "__main__":
    asyncio.run(main())
