"""Tasks that complete themselves in transactions of their own, importable by name; tests bind the app to a store."""

from __future__ import annotations

import os

from limpet import Limpet, current_job
from limpet.stores.sqlite.library import library

app = Limpet("sqlite:///nowhere.db")


@app.task(name="isolated", executor="process", retry=None)
def isolated(path: str) -> str:
    conn = library.connect(path)
    conn.execute("INSERT INTO effect VALUES (?)", (os.getpid(),))
    current_job().complete_sync(conn, "noted")
    conn.commit()
    conn.close()
    return "noted"


@app.task(name="suspect", retry=None)
async def suspect(path: str) -> str:
    conn = library.connect(path)
    conn.execute("INSERT INTO effect VALUES (?)", (os.getpid(),))
    await current_job().complete(conn, "noted")
    conn.commit()
    conn.close()
    os._exit(66)  # the worst time to die
