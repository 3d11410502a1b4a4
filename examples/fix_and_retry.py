"""A job that cannot succeed waits for a person, who sees why, corrects it and lets it run again.

Run it: python examples/fix_and_retry.py

On the command line the same is `limpet dead causes`, `limpet dead show ID` and `limpet dead retry ID`.
"""

import asyncio

from limpet import Dead, Limpet
from limpet.ops import Operator

app = Limpet("sqlite://")


@app.task(queue="email")
async def send_email(to: str) -> str:
    if "@" not in to:
        raise Dead(f"{to!r} is no address")  # trying again would not help: straight to the dead letters
    return f"sent to {to}"


async def main() -> None:
    async with app:
        good = await send_email.enqueue("ada@example.com")
        bad = await send_email.enqueue("bob at example.com")
        await app.work(until_empty=True)
        print("ada:", await good.result())
        print("bob:", (await bad.status()).state)

        operator = Operator(app.store, "carol")
        for cause in await operator.causes():
            print(f"{cause.count} dead: {cause.error}: {cause.message}")
        await operator.retry([bad.id], patch={"to": "bob@example.com"}, reason="typing error")
        await app.work(until_empty=True)
        print("bob:", await bad.result())
        for entry in await operator.audit():
            print(f"{entry.actor} did {entry.kind}: {entry.reason}")


if __name__ == "__main__":
    asyncio.run(main())
