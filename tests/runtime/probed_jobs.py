"""An app whose import and jobs last until a test lets them go on: a file is the word."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from limpet import Limpet

FOLDER = Path(os.environ["PROBED_FOLDER"])
app = Limpet()

while (FOLDER / "hold").exists():
    time.sleep(0.005)


@app.task(name="waits")
async def waits() -> None:
    (FOLDER / "runs").touch()
    while not (FOLDER / "go").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@app.task(name="blocks")
async def blocks() -> None:
    (FOLDER / "runs").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.005)  # noqa: ASYNC251
