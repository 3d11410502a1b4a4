"""An agent that writes an article in five calls of a model, and pays for each of them once, whatever is lost or killed.

    python examples/agent.py

Every call is a durable step: what is recorded is never asked again. A crash between an answer and its record cannot be
excluded, so each call carries the key of its step, and the provider (examples/provider.py) takes money once for a key.
Here every third answer is lost after it was paid for; tests/chaos/test_agent.py kills the worker instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from limpet import Limpet, current_job

app = Limpet(os.environ.get("AGENT_URL", "sqlite://"))


def call(path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["PROVIDER_URL"] + path, data, headers or {})
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def ask(prompt: str) -> str:
    """One paid call. However often it is sent, the key makes it one payment."""
    answer: str = call("/answers", {"prompt": prompt}, {"Idempotency-Key": current_job().step_key})["answer"]
    return answer


@app.task(name="agent.write", retry=[0, 0, 0, 0])
async def write(topic: str) -> str:
    job = current_job()
    outline = await job.step("outline", ask, f"outline {topic}")
    facts, quotes = await asyncio.gather(
        job.step("facts", ask, f"facts for {outline}"),
        job.step("quotes", ask, f"quotes for {outline}"),
    )
    draft = await job.step("draft", ask, f"draft with {facts} and {quotes}")
    return await job.step("review", ask, f"review {draft}")


async def main() -> None:
    async with app:
        job = await write.enqueue("bees")
        report = await app.work(until_empty=True)
        print(await job.result(timeout=5))
        print(f"{report.retried} attempts failed")
    bill = call("/bill")
    print(f"{sum(bill['asked'].values())} calls, {sum(bill['paid'].values())} payments")


if __name__ == "__main__":
    command = [sys.executable, str(Path(__file__).with_name("provider.py")), "--loses", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        os.environ["PROVIDER_URL"] = provider.stdout.readline().strip()
        try:
            asyncio.run(main())
        finally:
            provider.kill()
