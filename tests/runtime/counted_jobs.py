"""An app whose jobs end in the ways that metrics tell apart."""

from __future__ import annotations

from limpet import Dead, Limpet

app = Limpet()


@app.task(name="fine", queue="mail")
async def fine() -> None: ...


@app.task(name="bad", queue="pay")
async def bad() -> None:
    raise Dead("bad address")
