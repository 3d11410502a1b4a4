"""A secret in the arguments is used by the handler, and shown to no one: not in the job, its error, or a search.

Run it: python examples/secret_arguments.py
"""

import asyncio

from limpet import Limpet, Secret
from limpet.ops import InvalidQuery, Operator

app = Limpet("sqlite://", redact=["card.number"])


@app.task(name="pay", retry=1)
async def pay(order: int, card: dict[str, str], pin: Secret[str]) -> None:
    if pin.get_secret_value() != "right-pin":
        raise ValueError(f"order {order}: the pin {pin.get_secret_value()!r} is not that of {card['number']}")


async def main() -> None:
    async with app:
        job = await pay.enqueue(7, {"number": "4111-1111", "holder": "Ada"}, Secret("wrong-pin"))
        await app.work(until_empty=True)
        operator = Operator(app.store, "ada")
        shown = await operator.job(job.id)
        print(f"arguments: {shown.args}")
        print(f"error: {shown.reason}")
        try:
            await operator.jobs("args.card.number:4111*")
        except InvalidQuery as refused:
            print(f"search: {refused.message}")
        await operator.retry([job.id], patch={"pin": "right-pin"}, reason="the customer has told the right one")
        await app.work(until_empty=True)
        print(f"after the edit: {(await job.status()).state}")
        edit = next(each for each in await operator.audit() if each.kind == "job.retry")
        print(f"the audit log: {edit.data['before']} became {edit.data['after']}")


if __name__ == "__main__":
    asyncio.run(main())
