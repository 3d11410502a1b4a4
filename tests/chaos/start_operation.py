"""Runs one operation, in small chunks, by a clock that is ahead: `start_operation.py ID AHEAD_MS`."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from limpet.core.operations import operation
from limpet.ops.operations import Operations
from limpet.stores.open import open_store

CHUNK = 20


async def main(id: str, ahead_ms: int) -> None:
    vars(operation)["CHUNK"] = CHUNK  # a constant of the module, smaller here
    store = open_store(os.environ["CHAOS_URL"])
    try:
        await Operations(store, "ada", lambda: time.time_ns() // 1_000_000 + ahead_ms).run(id)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
