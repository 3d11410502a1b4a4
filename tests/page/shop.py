"""A shop with everything that the page shows: `python -m tests.page.shop` fills the store of LIMPET_URL with it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from limpet import Breaker, Budget, Cancel, Cron, Dead, Every, Limit, Limpet, Retry, current_job

app = Limpet()

# Texts that a page must show as what they are: markup, a line that turns right to left, and a word without an end.
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> {{7*7}} \u202egnp.exe\u202c </td> " + "W" * 10_000


class ReadTimeout(Exception):
    """What an HTTP client raises."""


class CardError(Exception):
    """What a payment service answers."""


@app.schedule(Every("30s"), {"to": "index@shop.example"}, name="embed-new")
@app.schedule(Cron("0 15 * * *"), {"to": "books@shop.example"}, name="billing-close")
@app.task(name="email.send", queue="email")
async def send(to: str) -> str:
    return f"sent to {to}"


@app.task(
    name="webhook.deliver",
    queue="webhooks",
    limits=[Limit("webhook slots", concurrency=20)],
    retry=Retry(attempts=3, base=0.01),
    classify={ReadTimeout: "transient"},
)
async def deliver(url: str, event: str, timeout: int = 10) -> int:
    if "globex" in url:
        await asyncio.sleep(0.05)
        raise ReadTimeout(f"hooks.globex.example did not answer in {timeout} s")
    return 200


@app.task(name="pdf.invoice", queue="pdf", redact=["args.secret"])
async def invoice(order: int, customer: dict[str, Any], secret: str = "") -> str:
    return f"{customer['vat_id']}-{order}"


@app.task(
    name="billing.charge",
    queue="billing",
    breaker=Breaker("payments", failures=3, cooldown=600),
    retry=Retry(attempts=2),
)
async def charge(card: str, cents: int) -> str:
    raise CardError(f"the card was declined ({card})")


async def ask(part: str) -> str:
    if part == "summarise-2":
        raise TimeoutError("the model did not answer in 30 s")
    return f"text of {part}"


@app.task(
    name="llm.summarise",
    queue="llm-heavy",
    limits=[Budget("llm:research", usd=10, per="day")],
    cost={"usd": 1.2},
    retry=Retry(attempts=5, base=600, cap=3600, jitter="none"),
)
async def summarise(team: str, contract_id: int, document: dict[str, Any]) -> str:
    job = current_job()
    job.log("reading the contract")
    for part in ("fetch_contract", "split_pages", "summarise-1", "summarise-2"):
        await job.step(part, ask, part)
    return "done"


@app.task(name="export.orders", queue="exports", timeout=3600)
async def export(rows: int) -> None:
    job = current_job()
    for done in range(rows):
        job.progress(done, rows, "rows")
        await asyncio.sleep(1)


@app.task(name="refund.decide", queue="billing")
async def refund(customer: str, cents: int) -> str:
    yes = await current_job().approval(f"Refund ${cents / 100:,.0f} to {customer}?", timeout="3d")
    return "refunded" if yes else "kept"


@app.task(name="crm.sync", queue="crm")
async def sync(customer: str) -> None:
    raise Cancel("endpoint removed by the customer")


@app.task(name="contract.fetch", queue="llm-heavy")
async def fetch(source: str) -> int:
    if source == "crm":
        raise Dead(f"{source} is off line")
    return len(source)


@app.task(name="contract.render", queue="llm-heavy")
async def render(parts: list[int]) -> str:
    return str(parts)


@app.task(name="odd.text", queue="<b>odd</b>&amp;\"'")
async def odd(text: str) -> None:
    raise Dead(text)


async def ask_for_all(scale: int) -> None:
    """Everything once, some things `scale` times."""
    await app.enqueue_many([send.job(to=f"customer-{n}@shop.example") for n in range(40 * scale)])
    hooks = ("globex", "acme", "initech")
    for n in range(12 * scale):
        customer = hooks[n % 3]
        url = f"https://hooks.{customer}.example/v1/in"
        await deliver.options(tenant=customer, tags=["eu"]).enqueue(url, "order.paid")
    for n in range(6):
        await invoice.enqueue(order=88_000 + n, customer={"name": f"Shop {n}"}, secret="hush")
    for n in range(5):
        await charge.enqueue(f"4242 {n}", 1_900)
    document = {
        "url": "s3://contracts/MSA-0419.pdf",
        "pages": 148,
        "signed": None,
        "terms": {"a": {"b": {"c": [1, 2]}}},
    }
    for n in range(3):
        options = summarise.options(tenant="acme", tags=["contracts", "eu"], unique=f"summary:{n}")
        await options.enqueue("research", 9_007_199_254_740_993 + n, document)
    await export.enqueue(3_000)
    await refund.enqueue("globex", 420_000)
    await refund.enqueue("acme", 1_900)
    await sync.enqueue("umbrella")
    flow = app.flow("contract-review")
    sources = [flow.add(fetch.job(name), name=f"fetch-{name}") for name in ("mail", "crm", "archive")]
    whole = flow.add(render.job(list(sources)), name="render")
    flow.add(send.job(to=whole), name="notify")
    await flow.enqueue()
    await odd.enqueue(HOSTILE)
    await send.options(delay="2h", priority="high").enqueue("later@shop.example")


async def main(scale: int) -> None:
    async with app:
        await app.publish()
        await ask_for_all(scale)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
