"""Reads what a run costs: processor time of this process and of the store's server, and the server's memory.

Peers' adapters run in environments of their own and use this too, so it needs nothing but Python.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from urllib.parse import SplitResult, unquote, urlsplit

SETTLED_S = 10.0  # longest wait for what the server does on the side
SERVER = "server.pid"  # in the folder of a run: the process of a server that cannot be asked what it costs


def cpu_s(url: str) -> float:
    """Processor time of this process, and of the server where `url` names one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + server_cpu_s(url)


def server_cpu_s(url: str) -> float:
    """Processor time of the server, its threads included; a file has none."""
    if url.startswith("sqlite:"):
        return 0.0
    if url.startswith("postgresql:"):
        return family_cpu_s(int(Path(os.environ["LIMPET_BENCH_FOLDER"], SERVER).read_text()))
    found = info(url, "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def family_cpu_s(pid: int) -> float:
    """Processor time of a process and its children, those that have ended included."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # it ended just now: its parent has its time
        return 0.0
    ticks = sum(map(int, words[11:15]))  # its own, as user and in the kernel; the same of its children that ended
    return ticks / os.sysconf("SC_CLK_TCK") + sum(family_cpu_s(int(child)) for child in children)


def memory_bytes(url: str) -> int:
    """What the server's data take, without the buffers of a log that is still being written."""
    until_s = time.monotonic() + SETTLED_S
    while info(url, "persistence")["aof_rewrite_in_progress"] != "0" and time.monotonic() < until_s:
        time.sleep(0.05)
    found = info(url, "memory")
    return int(found["used_memory"]) - int(found["mem_not_counted_for_evict"])


def info(url: str, section: str) -> dict[str, str]:
    """What the server says about itself."""
    lines = ask(url, "INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def ask(url: str, *words: str) -> bytes:
    """Send one command and read its one answer, on a connection of its own: this is no client, only a meter."""
    where = urlsplit(url)
    address = (where.hostname or "127.0.0.1", where.port or 6379)
    answer = b""
    with socket.create_connection(address, timeout=5) as conn, conn.makefile("rb") as reader:
        for command in (*greeting(where), words):
            parts = [word.encode() for word in command]
            conn.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
            answer = reader.readline().rstrip()
            if answer[:1] == b"-":
                raise OSError(f"the server refuses {command[0]}: {answer[1:].decode()}")
            answer = reader.read(int(answer[1:])) if answer[:1] == b"$" else answer[1:]
        return answer


def percentiles(waits_ms: Sequence[float]) -> dict[str, float]:
    """The middle wait, and how long the unlucky ones are."""
    cuts = quantiles(waits_ms, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p95_ms": cuts[94], "p99_ms": cuts[98]}


def per_call(jobs: int, took_s: float) -> dict[str, float]:
    """The figures of calls that were awaited one by one."""
    return {"jobs_per_s": jobs / took_s, "each_us": took_s / jobs * 1_000_000}


def greeting(where: SplitResult) -> list[tuple[str, ...]]:
    """What a Redis server is told first."""
    commands: list[tuple[str, ...]] = []
    if where.password is not None:
        commands.append(("AUTH", unquote(where.username or "default"), unquote(where.password)))
    if where.path.strip("/"):
        commands.append(("SELECT", where.path.strip("/")))
    return commands
