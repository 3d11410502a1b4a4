"""Damages a store with its engine's own client, as a person with a shell can."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import msgspec
from msgspec.structs import replace

from limpet.core.gate import Gate, GateRule
from limpet.stores.base import Store
from limpet.stores.postgres import PostgresStore
from limpet.stores.redis import RedisStore
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared as postgres
from tests.servers.redis import shared as redis


class Vandal:
    """What one engine's tables or keys can suffer."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def remove(self, id: bytes) -> None:
        """The record of a job goes, and nothing else."""
        match self.store:
            case SqliteStore():
                self._sqlite("DELETE FROM limpet_job WHERE id = ?", id)
            case RedisStore():
                self.redis("HDEL", "J", id)
            case _:
                self._postgres(*(f"DELETE FROM {{s}}.{t} WHERE id = '\\x{id.hex()}'" for t in PLACES))

    def forget_policies(self) -> None:
        """Nothing says any more what the policies of the stored jobs are."""
        match self.store:
            case SqliteStore():
                self._sqlite("UPDATE limpet_policy SET body = x'ff'")
            case RedisStore():
                self.redis("DEL", "po")
            case _:
                self._postgres("UPDATE {s}.policy SET body = '\\xff'")

    def leak(self, gate: Gate, slots: int) -> None:
        """A gate counts slots that no job holds."""
        spoilt = replace(gate, used=gate.used + slots)
        match self.store:
            case SqliteStore():
                self._sqlite("UPDATE limpet_gate SET body = ? WHERE key = ?", msgspec.json.encode(spoilt), gate.key)
            case RedisStore():
                self.redis("HSET", "g", gate.key, msgspec.msgpack.encode(spoilt))
            case _:
                self._postgres(f"UPDATE {{s}}.gate SET used = used + {slots} WHERE key = '{gate.key}'")

    def miscount(self) -> None:
        """Counters say something else: one of a state, and a total."""
        match self.store:
            case SqliteStore():
                self._sqlite(
                    "UPDATE limpet_count SET n = n + CASE what WHEN 2 THEN 5 ELSE 12 END WHERE what IN (2, 10)"
                )
            case RedisStore():
                self.redis("HINCRBY", "n", b"default\0work\0" + b"2", 5)
                self.redis("HINCRBY", "n", b"\0\0" + b"10", 12)
            case _:
                more = "ON CONFLICT (queue, task, what) DO UPDATE SET n = c.n + excluded.n"
                self._postgres(
                    f"INSERT INTO {{s}}.count AS c VALUES ('default', 'work', 2, 5) {more}",
                    f"INSERT INTO {{s}}.count AS c VALUES ('', '', 10, 12) {more}",
                )

    def miscount_tenant(self, queue: str, tenant: str, more: int) -> None:
        """The counter that a tenant's depth is checked against says more, or fewer."""
        match self.store:
            case SqliteStore():
                self._sqlite(
                    "UPDATE limpet_count SET n = n + ? WHERE (queue, task, what) = (?, ?, 20)", more, queue, tenant
                )
            case RedisStore():
                self.redis("HINCRBY", "wt", f"{queue}\0{tenant}", more)
            case _:
                self._postgres(
                    f"INSERT INTO {{s}}.count AS c VALUES ('{queue}', '{tenant}', 22, {more})"
                    " ON CONFLICT (queue, task, what) DO UPDATE SET n = c.n + excluded.n"
                )

    def unlist(self, ready: Sequence[bytes]) -> None:
        """What a claim finds ready jobs by goes."""
        match self.store:
            case SqliteStore():
                self._sqlite("UPDATE limpet_lane SET state = 0, gate = NULL")
                self._sqlite("DELETE FROM limpet_seat")
            case RedisStore():
                for name in self.redis_keys():
                    if name.startswith((b"L:", b"R:", b"S:", b"A:")) or name in (b"act", b"ls", b"sl", b"tn"):
                        self.redis("DEL", name)
            case _:
                self._postgres(
                    "UPDATE {s}.lane_now SET state = 0, gate = NULL", "DELETE FROM {s}.seat", "DELETE FROM {s}.post"
                )

    def forget_leases(self) -> None:
        """Nothing says any more which session holds which running job."""
        match self.store:
            case SqliteStore():
                self._sqlite("DELETE FROM limpet_lease")
            case RedisStore():
                for name in self.redis_keys():
                    if name.startswith((b"b:", b"st:")) or name in (b"le", b"H"):
                        self.redis("DEL", name)
            case _:
                self._postgres("DELETE FROM {s}.lease")

    def forget_lanes(self) -> None:
        """Nothing says any more what the lanes of the stored jobs are."""
        match self.store:
            case SqliteStore():
                self._sqlite("DELETE FROM limpet_lane")
            case RedisStore():
                self.redis("DEL", "ln")
            case _:
                self._postgres(*(f"DELETE FROM {{s}}.{t}" for t in ("lane", "lane_now", "lane_gate", "seat", "post")))

    def spoil_charges(self) -> bool:
        """What running jobs took of their gates cannot be read; False where it can be nothing else."""
        match self.store:
            case SqliteStore():
                self._sqlite("UPDATE limpet_job SET charged = x'ff' WHERE state = 3")
            case RedisStore():
                running = self.redis("HGETALL", "run")
                assert isinstance(running, list)
                for id, hold in zip(running[::2], running[1::2], strict=True):
                    self.redis("HSET", "run", id, hold[:13] + b"\xc1")
            case _:
                return False
        return True

    def crowd(self, count: int, until_ms: int) -> None:
        """So many breakers by key are there, and open."""
        match self.store:
            case SqliteStore():
                self._sqlite(
                    "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
                    "INSERT INTO limpet_gate (key, body, opens_ms, rank) SELECT printf('breaker:crowd:%06d', n), "
                    "CAST(replace(?, 'KEY', printf('breaker:crowd:%06d', n)) AS BLOB), NULL, 0 FROM n",
                    *(count, msgspec.json.encode(Gate(GateRule("KEY"), open_until_ms=until_ms)).decode()),
                )
            case RedisStore():
                keys = [f"breaker:crowd:{n:06d}" for n in range(1, count + 1)]
                for at in range(0, count, 5_000):
                    some = keys[at : at + 5_000]
                    bodies = [msgspec.msgpack.encode(Gate(GateRule(key), open_until_ms=until_ms)) for key in some]
                    self.redis("HSET", "g", *(word for pair in zip(some, bodies, strict=True) for word in pair))
                    self.redis("ZADD", "bk", *(word for key in some for word in (0, f"0{key}")))
            case _:
                self._postgres(
                    "INSERT INTO {s}.gate (key, open_until_ms) SELECT 'breaker:crowd:' || lpad(n::text, 6, '0'), "
                    f"{until_ms} FROM generate_series(1, {count}) AS n"
                )

    # -- shells

    def _sqlite(self, sql: str, *values: object) -> None:
        assert isinstance(self.store, SqliteStore)
        assert self.store.path is not None
        with closing(library.connect(self.store.path, timeout=30)) as conn, conn:  # two libraries on one file lose rows
            conn.execute(sql, values)

    def _postgres(self, *statements: str) -> None:
        assert isinstance(self.store, PostgresStore)
        for sql in statements:
            postgres(POSTGRES).ask(sql.format(s=f'"{self.store.schema}"'))

    def redis(self, command: str, key: str | bytes, *words: str | bytes | int) -> object:
        return redis(REDIS).ask(command, self._prefix() + (key.encode() if isinstance(key, str) else key), *words)

    def redis_keys(self) -> list[bytes]:
        prefix = self._prefix()
        found: list[bytes] = redis(REDIS).ask("KEYS", prefix.replace(b"{", b"\\{") + b"*")
        return [key[len(prefix) :] for key in found]

    def _prefix(self) -> bytes:
        assert isinstance(self.store, RedisStore)
        return f"{{limpet:{self.store.namespace}}}:".encode()


PLACES = ("job", "wait", "running", "done")
