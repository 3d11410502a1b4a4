"""A provider of a model, on this machine: it answers prompts for money, and takes it once for each idempotency key.

    python examples/provider.py [--loses N]

It prints its URL. POST /answers with a JSON prompt and an Idempotency-Key is a paid call; the same key again gets the
same answer and costs nothing. With --loses 3 every third answer is lost on the way, after it was paid for. GET /bill
says which keys have paid, and how often each was asked.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Ledger:
    """What was paid for, and what was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()

    def answer(self, key: str, prompt: str) -> tuple[str, int]:
        """The answer to a prompt, paid for unless this key has paid before; and how many calls there were in all."""
        with self._lock:
            self.asked[key] += 1
            if key not in self._answers:
                self.paid[key] += 1
                self._answers[key] = f"({prompt})"
            return self._answers[key], self.asked.total()


class Handler(BaseHTTPRequestHandler):
    ledger: Ledger
    loses: int

    def do_POST(self) -> None:
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        key = self.headers["Idempotency-Key"]
        if not key:
            self.say(400, {"error": "an Idempotency-Key is needed"})
            return
        answer, count = self.ledger.answer(key, prompt)
        if self.loses and count % self.loses == 0:
            self.close_connection = True  # the money is gone, and the answer too
        else:
            self.say(200, {"answer": answer})

    def do_GET(self) -> None:
        self.say(200, {"paid": self.ledger.paid, "asked": self.ledger.asked})

    def say(self, status: int, shape: dict[str, Any]) -> None:
        body = json.dumps(shape).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that was killed does not wait for its answer


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--loses", type=int, default=0)
    Handler.ledger, Handler.loses = Ledger(), options.parse_args().loses
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
