"""A model provider on this machine, as strict as real ones: requests and tokens per minute, overload, a spend limit.

    python examples/model_provider.py --requests 600/m --tokens 60000/m

It prints its URL. POST /answers {"prompt": ..., "max_tokens": ...} answers as a model does, slowly. What is over a
limit gets a 429 with Retry-After and the x-ratelimit headers of both buckets; with --overload 0.1 every call gets a 529
for a tenth of every two seconds; when --spend dollars are gone, a 429 that no waiting cures. GET /report sums up what
happened since the first call. examples/models.py shows how to live with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
USD_PER_TOKEN = 0.00001
OVERLOAD_EVERY_S = 2.0
CHARS_PER_TOKEN = 3.8


class Bucket:
    """Tokens that time brings back; it starts full."""

    def __init__(self, rate: str, burst_s: float) -> None:
        number, _, unit = rate.partition("/")
        self.per_s = float(number) / UNITS[unit]
        self.size = self.level = self.per_s * burst_s
        self.taken = 0.0
        self.at_s = time.monotonic()

    def refill(self) -> None:
        now_s = time.monotonic()
        self.level = min(self.size, self.level + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s

    def missing_s(self, amount: float) -> float:
        """How long until there is as much; 0 when there is."""
        self.refill()
        return max(0.0, (min(amount, self.size) - self.level) / self.per_s)

    def take(self, amount: float) -> None:
        self.level -= amount
        self.taken += amount

    def used(self, for_s: float) -> float:
        """The share that was taken of all that it has allowed in that time."""
        return self.taken / (self.size + for_s * self.per_s)


@dataclass
class Provider:
    requests: Bucket
    tokens: Bucket
    spend_usd: float
    overload_s: float
    slow_s: float
    spent_usd: float = 0.0
    began_s: float | None = None  # when the first call came
    counts: dict[str, int] = field(default_factory=lambda: {"accepted": 0, "refused": 0, "overloaded": 0, "unpaid": 0})

    async def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, str], dict[str, Any]]:
        if self.began_s is None:
            self.began_s = time.monotonic()
        asked = math.ceil(len(str(body["prompt"])) / CHARS_PER_TOKEN) + int(body.get("max_tokens", 0))
        if self.spent_usd + asked * USD_PER_TOKEN > self.spend_usd:
            return self._no(429, "unpaid", "insufficient_quota", "you have used all the money of this account")
        if time.monotonic() % OVERLOAD_EVERY_S < self.overload_s:
            return self._no(529, "overloaded", "overloaded_error", "too much is going on here")
        wait_s = max(self.requests.missing_s(1), self.tokens.missing_s(asked))
        if wait_s > 0:
            return self._no(429, "refused", "rate_limit_exceeded", "slow down", {"Retry-After": f"{wait_s:.3f}"})
        self.requests.take(1)
        self.tokens.take(asked)
        self.counts["accepted"] += 1
        self.spent_usd += asked * USD_PER_TOKEN
        await asyncio.sleep(self.slow_s)
        usage = {"tokens": asked, "usd": round(asked * USD_PER_TOKEN, 6)}
        return 200, self._headers(), {"answer": f"about {body['prompt'][:20]}", "usage": usage}

    def _no(
        self, status: int, count: str, code: str, message: str, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        self.counts[count] += 1
        return status, {**self._headers(), **(headers or {})}, {"error": {"code": code, "message": message}}

    def _headers(self) -> dict[str, str]:
        found = {}
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            bucket.refill()
            found[f"x-ratelimit-limit-{name}"] = f"{bucket.per_s * 60:.0f}"
            found[f"x-ratelimit-remaining-{name}"] = f"{max(0, int(bucket.level))}"
            found[f"x-ratelimit-reset-{name}"] = f"{max(0.0, (bucket.size - bucket.level) / bucket.per_s):.3f}s"
        return found

    def report(self) -> dict[str, Any]:
        for_s = 0.0 if self.began_s is None else time.monotonic() - self.began_s
        return {
            **self.counts,
            "calls": sum(self.counts.values()),
            "spent_usd": round(self.spent_usd, 6),
            "requests_used": round(self.requests.used(for_s), 4),
            "tokens_used": round(self.tokens.used(for_s), 4),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, and as many requests as it brings."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                if lines[0].startswith("GET /report"):
                    status, headers, said = 200, dict[str, str](), self.report()
                else:
                    status, headers, said = await self.answer(json.loads(body))
                data = json.dumps(said).encode()
                headers |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
                text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(f"HTTP/1.1 {status} .\r\n{text}\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", default="600/m", help="requests per s, m or h")
    parser.add_argument("--tokens", default="60000/m", help="tokens per s, m or h")
    parser.add_argument("--burst-s", type=float, default=1.0, help="how many seconds' worth each bucket holds")
    parser.add_argument("--spend", type=float, default=1e9, help="dollars until the account is empty")
    parser.add_argument("--overload", type=float, default=0.0, help="seconds of every two in which calls get a 529")
    parser.add_argument("--slow", type=float, default=0.1, help="seconds that an answer takes")
    asked = parser.parse_args()
    requests, tokens = Bucket(asked.requests, asked.burst_s), Bucket(asked.tokens, asked.burst_s)
    provider = Provider(requests, tokens, asked.spend, asked.overload, asked.slow)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
