"""Servers that belong together: a sentinel that watches a master, and a cluster whose masters share the slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.servers.flavours import Flavour
from tests.servers.process import Unreachable
from tests.servers.redis import RedisServer

SLOTS = 16_384
AGREE_S = 60.0  # a cluster needs a second or two until every node has heard of every other
SILENCE_MS = 30_000  # a busy machine may keep a server that is well from answering for seconds


class Sentinel(RedisServer):
    """Watches one master by name; with a quorum of one it decides alone. How soon, a test says with `expect_a_kill`."""

    def __init__(self, master: RedisServer, folder: Path, *, name: str = "limpet") -> None:
        super().__init__(master.flavour, folder)
        self.name = name
        self._master = master

    def words(self) -> list[str]:
        """It keeps what it learns in its configuration, so that has to be a file."""
        file = self.folder / "sentinel.conf"
        if not file.exists():
            lines = [
                f"sentinel monitor {self.name} 127.0.0.1 {self._master.port} 1",
                f"sentinel down-after-milliseconds {self.name} {SILENCE_MS}",
                f"sentinel failover-timeout {self.name} 3000",
            ]
            file.write_text("".join(line + "\n" for line in lines))
        log = str(self.folder / "server.log")
        return [str(file), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1", "--logfile", log]

    def url_of(self, *others: Sentinel) -> str:
        """The URL that names the master by its sentinels."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in (self, *others))
        return f"redis+sentinel://{hosts}/{self.name}"

    def expect_a_kill(self) -> None:
        """From here on half a second of silence is the master's end."""
        self.ask("SENTINEL", "SET", self.name, "down-after-milliseconds", 500)

    def master_port(self) -> int:
        """Where it says that the master is now."""
        _, port = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return int(port)


def replica(master: RedisServer, folder: Path) -> RedisServer:
    """A server that copies `master`; started, and with its copy complete."""
    server = RedisServer(master.flavour, folder, args=["--replicaof", "127.0.0.1", str(master.port)]).start()
    until("the replica has its copy", lambda: b"master_link_status:up" in server.ask("INFO", "replication"))
    return server


def sentinel(master: RedisServer, folder: Path, *, name: str = "limpet") -> Sentinel:
    """A started sentinel over `master`."""
    server = Sentinel(master, folder, name=name)
    server.start()
    return server


def cluster(flavour: Flavour, folder: Path, *, masters: int = 3) -> list[RedisServer]:
    """Started masters that share all slots; the first has the lowest ones."""
    args = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(SILENCE_MS)]
    nodes = [RedisServer(flavour, folder / str(number), args=args).start() for number in range(masters)]
    for number, node in enumerate(nodes):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        share = range(SLOTS * number // masters, SLOTS * (number + 1) // masters)
        node.ask("CLUSTER", "ADDSLOTS", *share)
        if number:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    until("the cluster agrees", lambda: all(_agrees(node, masters) for node in nodes))
    return nodes


def _agrees(node: RedisServer, masters: int) -> bool:
    said = node.ask("CLUSTER", "INFO")
    return b"cluster_state:ok" in said and f"cluster_known_nodes:{masters}\r\n".encode() in said


def until(what: str, true: Callable[[], bool], within_s: float = AGREE_S) -> None:
    """Poll until something is true; say what never became so."""
    deadline_s = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline_s:
            raise Unreachable(f"within {within_s} s: {what}")
        time.sleep(0.02)
