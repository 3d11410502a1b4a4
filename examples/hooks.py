"""Hooks hear of every job that dies or is cancelled: here a bad order dies, and takes the jobs that wait for it along.

Run it: python examples/hooks.py
"""

import asyncio

from limpet import Dead, JobRecord, Limpet

app = Limpet("sqlite://")


@app.task(name="charge")
async def charge(order: int, card: str) -> str:
    if card == "expired":
        raise Dead("the card has expired")
    return f"order {order} is paid"


@app.task(name="ship")
async def ship(order: int) -> str:
    return f"order {order} is on its way"


@app.on_dead
async def alert(job: JobRecord) -> None:
    print(f"alert: {job.task} of order {job.args['order']} died: {job.reason}")


@app.on_finished(states=["cancelled"], tasks=["ship"])
def tell_customer(job: JobRecord) -> None:
    print(f"mail: order {job.args['order']} will not be shipped")


async def main() -> None:
    async with app:
        await app.publish()  # a worker does it when it starts: from here on no end is missed
        good, bad = await charge.enqueue(1, "valid"), await charge.enqueue(2, "expired")
        shipped = await ship.options(after=[good]).enqueue(1)
        await ship.options(after=[bad]).enqueue(2)
        await app.work(until_empty=True)
        print(await shipped.result())


if __name__ == "__main__":
    asyncio.run(main())
