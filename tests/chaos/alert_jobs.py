"""The app of the test of alerts: a job that dies."""

from __future__ import annotations

import os

from limpet import Dead, Limpet

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


@app.task(name="dies", retry=1)
async def dies() -> None:
    raise Dead("as it was told")
