"""A dollar a day for each team: jobs reserve what they may cost, and give back what they did not spend.

Run it: python examples/budget.py

On the command line: `limpet limits`, `limpet limits set llm:acme --budget usd=1.50/day`, `limpet events`.
"""

import asyncio

from limpet import Budget, InvalidArguments, Limit, Limpet, current_job
from limpet.ops import LimitChange, Operator

app = Limpet("sqlite://")
PRICES = {"short": 0.05, "usual": 0.20, "long": 0.35}  # the actual cost of the calls


@app.task(
    name="ask",
    limits=[
        Limit("model", rate="600/m", buckets={"tokens": "60000/m"}),
        Budget("llm:{team}", usd=1, per="day"),
    ],
    cost=lambda prompt, **_: {"tokens": 10 * len(prompt), "usd": 0.30},  # an estimate, rather too high than too low
)
async def ask(team: str, prompt: str) -> str:
    current_job().spent(tokens=9 * len(prompt), usd=PRICES[prompt])
    return f"an answer to the {prompt} question"


async def main() -> None:
    async with app:
        acme = [await ask.enqueue("acme", prompt) for prompt in ("usual", "long", "short", "usual", "usual")]
        zen = await ask.enqueue("zen", "short")
        await app.work(until_empty=True, concurrency=1)
        for job in [*acme, zen]:
            status = await job.status()
            print(f"{status.state}, spent {status.spent.get('usd', 0):.2f}")

        # What is left cannot pay for one more estimate, so the last job has not begun: it has cost nothing.
        print(str((await acme[-1].explain()).reasons[0].text).partition("; it continues")[0])

        try:
            await ask.options(cost={"usd": 3}).enqueue("acme", "long")
        except InvalidArguments as refused:
            print(f"refused: {refused.message}")

        await Operator(app.store, "carol").set_limit("llm:acme", LimitChange(budgets={"usd": "1.50/day"}))
        await app.work(until_empty=True)
        print(await acme[-1].result(timeout=5))


if __name__ == "__main__":
    asyncio.run(main())
