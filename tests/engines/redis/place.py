"""A bench on Redis whose keys can be looked at, and whose commands can be counted."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count

from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.redis.audit import faults
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared

LISTENS = {"blpop", "lpop"}  # a store listens whenever there is something to hear, which is nobody's cost

_number = count()


class Place(Bench):
    """A bench on a namespace of its own, by default of the server that all tests share."""

    def __init__(self, server: RedisServer | None = None, options: str = "") -> None:
        self.server = server or shared(REDIS)
        self.namespace = f"place-{next(_number)}"
        super().__init__(open_store(self.server.url + options, self.namespace), Clock())

    def key(self, name: bytes | str) -> bytes:
        return f"{{limpet:{self.namespace}}}:".encode() + (name.encode() if isinstance(name, str) else name)

    def sound(self) -> bool:
        """Whether no two places of the namespace disagree."""
        found = faults(self.server, self.namespace)
        assert not found, found[:5]
        return True

    def reset(self) -> None:
        self.server.ask("CONFIG", "RESETSTAT")

    def commands(self) -> Counter[str]:
        """How often the server has run which command since `reset`, within scripts too."""
        text = self.server.ask("INFO", "commandstats").decode()
        calls = re.findall(r"^cmdstat_(\S+?):calls=(\d+)", text, re.MULTILINE)
        return Counter({name: int(number) for name, number in calls if name not in LISTENS})


class Numbers:
    """Ids that count."""

    def __init__(self) -> None:
        self.last = 0

    def make(self, now_ms: int) -> bytes:
        self.last += 1
        return now_ms.to_bytes(6, "big") + self.last.to_bytes(10, "big")
