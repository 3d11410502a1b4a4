"""Emails overtake exports, and a customer with many rows does not hold back the others.

Run it: python examples/email_and_exports.py

In a real service the store is a file, the web process only enqueues, and workers run beside it:
`app = Limpet("sqlite:///jobs.db")` and `limpet worker email_and_exports:app --processes 2`.
"""

import asyncio

from limpet import Limit, Limpet, Retry

app = Limpet("sqlite://")
finished: list[str] = []


@app.task(queue="email", priority="critical", timeout=30, retry=Retry(attempts=5, base=1, factor=4, cap=300))
async def send_email(to: str) -> None:
    finished.append(f"email {to}")


@app.task(queue="exports", priority="low", tenant="customer", limits=[Limit("exports:{customer}", concurrency=2)])
async def export_row(customer: str, row: int) -> None:
    await asyncio.sleep(0.005)
    finished.append(customer)


async def main() -> None:
    async with app:
        await app.enqueue_many(export_row.job("globex", row) for row in range(200))
        await app.enqueue_many(export_row.job("acme", row) for row in range(3))
        await send_email.enqueue("ada@example.com")
        await app.work(concurrency=4, until_empty=True)

    email = finished.index("email ada@example.com")
    acme = max(place for place, who in enumerate(finished) if who == "acme")
    print(f"the email was asked for last and finished at place {email + 1} of {len(finished)}")
    print(f"acme's three rows came after globex's 200 and were all done at place {acme + 1}")


if __name__ == "__main__":
    asyncio.run(main())
