"""Eight worker processes call a model as fast as its provider allows, and not faster.

    python examples/models.py [--seconds 10]

The provider (examples/model_provider.py, started here) counts requests and tokens, and answers 429 to what is over.
The limit below has the provider's numbers, and one bucket of them for all workers. So nearly all that is allowed is
used, and next to nothing refused: compare what is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limpet import Limit, Limpet, current_job
from limpet.ops import Operator

WORKERS = 8
MAX_TOKENS = 50
# What the provider allows: 36 requests and 5,000 tokens a second, with a second's worth of each at once.
PROVIDER = ("--requests", "36/s", "--tokens", "5000/s", "--burst-s", "1")
# The same rates, and four fifths of the bursts. A call arrives a little later than its job was claimed, some more so
# than others, and a job may start when one token of what it needs is left: the last fifth is room for both. It is
# missed once, at the beginning; a smaller rate would be missed all the time.
MODEL = Limit("model:{model}", rate="36/s", burst=28, buckets={"tokens": "4000/800ms"}, learns=True)

app = Limpet()


class ProviderError(Exception):
    """An answer that is none: its status, headers and body say to the classifier what is to be done."""

    def __init__(self, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        super().__init__(body["error"]["message"])
        self.status_code, self.headers, self.body = status, headers, body


def estimate(prompt: str, **_: object) -> dict[str, int]:
    """What a call will cost at most, by the length of its prompt: a little too low, as such rules are."""
    return {"tokens": len(prompt) // 4 + MAX_TOKENS}


@app.task(name="ask", limits=[MODEL], cost=estimate, timeout=30)
def ask(model: str, prompt: str) -> str:
    answer = call("/answers", {"model": model, "prompt": prompt, "max_tokens": MAX_TOKENS})
    current_job().spent(tokens=answer["usage"]["tokens"], usd=answer["usage"]["usd"])  # the actual cost
    text: str = answer["answer"]
    return text


def call(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(os.environ["PROVIDER_URL"] + path, data, timeout=20) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as refused:
        raise ProviderError(refused.code, dict(refused.headers), json.load(refused)) from refused


async def crowd(seconds: float) -> dict[str, Any]:
    """Enqueue more than the limits allow in that time; what the provider says when it is over."""
    rng = random.Random(1)
    prompts = ["x" * rng.randint(200, 600) for _ in range(int(60 * (seconds + 1)))]
    async with app, asyncio.timeout(seconds + 60):
        operator = Operator(app.store, "example")
        while len(await operator.workers()) < WORKERS:  # noqa: ASYNC110 - they are other processes
            await asyncio.sleep(0.1)
        await app.enqueue_many([ask.job("small", prompt) for prompt in prompts])
        await asyncio.sleep(seconds)
        return await asyncio.to_thread(call, "/report")


@contextmanager
def provider() -> Iterator[str]:
    """The URL of a provider of our own."""
    command = [sys.executable, str(Path(__file__).with_name("model_provider.py")), *PROVIDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def workers(url: str) -> Iterator[None]:
    """As in a shell: limpet worker models:app --processes 8"""
    command = [sys.executable, "-m", "limpet.cli", "worker", "models:app", "--url", url, "--processes", str(WORKERS)]
    options = ["--grace", "1s", "--log-level", "warning"]
    with subprocess.Popen([*command, *options], cwd=Path(__file__).parent) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--seconds", type=float, default=10)
    seconds = options.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, provider() as provider_url:
        url = os.environ.get("LIMPET_URL", f"sqlite:///{folder}/models.db")
        os.environ["PROVIDER_URL"] = provider_url
        app.rebind(url)
        with workers(url):
            report = asyncio.run(crowd(seconds))
    print(f"{report['calls']} calls: {report['accepted']} accepted, {report['refused']} refused")
    requests, tokens = report["requests_used"], report["tokens_used"]
    print(f"of what was allowed: {requests:.1%} of the requests, {tokens:.1%} of the tokens")


if __name__ == "__main__":
    main()
