"""A stand-in for your own app: replace it, and `shop:app` where it is named."""

from __future__ import annotations

import asyncio

from limpet import Limpet

app = Limpet()  # the store is LIMPET_URL


@app.task
async def greet(name: str) -> str:
    await asyncio.sleep(0.01)
    return f"Hello, {name}!"
