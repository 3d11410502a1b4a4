"""A report is put together by jobs that wait for each other; one of them dies, is mended, and the report is finished.

Run it: python examples/flow.py

On the command line the same is `limpet flows`, `limpet flow ID` and `limpet flow retry ID`.
"""

import asyncio

from limpet import Dead, Limpet, chord

app = Limpet("sqlite://")
on_line = {"sales"}


@app.task
async def fetch(source: str) -> int:
    if source not in on_line:
        raise Dead(f"{source} is off line")  # trying again would not help: a person has to look
    return len(source)


@app.task
async def render(sales: int, stock: int) -> str:
    return f"{sales} sold, {stock} in stock"


@app.task
async def square(n: int) -> int:
    return n * n


@app.task
async def total(numbers: list[int]) -> int:
    return sum(numbers)


async def main() -> None:
    async with app:
        # Passing a job as an argument makes a flow: its result arrives as the value.
        flow = app.flow("report")
        sales = flow.add(fetch.job("sales"), name="sales")
        stock = flow.add(fetch.job("stock"), name="stock")
        flow.add(render.job(sales, stock), name="render")
        report = await flow.enqueue()  # all of it in one step, or none
        await app.work(until_empty=True)
        for node in (await report.status()).nodes:
            print(f"{node.node}: {node.state}")

        on_line.add("stock")
        await report.retry(reason="stock is back")  # what died, with what its death cancelled
        await app.work(until_empty=True)
        print("report:", await report.result())

        # Fan out and in: thousands beside each other, then one job with the list of their results.
        job = await chord([square.job(n) for n in range(1_000)], total.job()).enqueue()
        await app.work(until_empty=True)
        print("total:", await job.result())


if __name__ == "__main__":
    asyncio.run(main())
