"""Reads everything that a namespace holds and says where two places of it disagree: every index follows the records."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter, defaultdict
from typing import Any

import msgspec

from limpet.core.gate import Charge, Gate, rank
from limpet.core.jobs.state import State
from limpet.core.limits.account import Running, accounts
from limpet.stores.packed import Extra
from limpet.stores.redis.fields import ATTEMPTS, BODY, EXTRA, KIDS, LAST_MS, NOTES, RESULT
from limpet.stores.redis.keys import KEYS
from limpet.stores.redis.record import Head, Rare, head_of, parts_of
from tests.servers.redis import RedisServer, exchange

BLOCKED, SCHEDULED, READY, RUNNING, SUCCEEDED, DEAD, CANCELLED = (state.code for state in State)
READERS = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"set": ("SMEMBERS",),
    b"list": ("LRANGE", 0, -1),
}
OF_THE_NEXT_RELEASE = b"rg"  # see tests/next_release.py

unpack = msgspec.msgpack.decode


def everything(server: RedisServer, namespace: str) -> dict[bytes, Any]:
    """Every key of a namespace, without its prefix, with what it holds."""
    return {key: value for key, (kind, value) in typed(server, namespace).items() if kind in READERS}


def typed(server: RedisServer, namespace: str) -> dict[bytes, tuple[bytes, Any]]:
    """The same with the type of each; what a stream holds is left out."""
    prefix = f"{{limpet:{namespace}}}:"
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), 5)) as line:
        found: dict[bytes, tuple[bytes, Any]] = {}
        for key in exchange(line, ("KEYS", prefix.replace("{", "\\{") + "*")):
            kind = exchange(line, ("TYPE", key))
            if kind == b"none":
                continue  # it has expired since it was listed
            command, *rest = READERS.get(kind, ("EXISTS",))
            value = exchange(line, (command, key, *rest))
            if kind in (b"hash", b"zset"):
                value = dict(zip(value[::2], value[1::2], strict=True))
            found[key[len(prefix) :]] = kind, value
        return found


def names_of(stored: bytes) -> list[str]:
    """The names in the map of keys that a key may have; one, in a sound map."""
    return [
        name
        for name, key in KEYS.items()
        if (stored.startswith(key.stored.encode()) if key.per else stored == key.stored.encode())
    ]


def parts(raw: bytes, flags: int) -> tuple[Rare, Extra]:
    """What follows the head, as scripts read it: to them an empty list and an empty map are one."""
    try:
        rare, extra, _ = parts_of(raw, flags)
    except msgspec.ValidationError:
        rare, _, at = parts_of(raw, flags & ~EXTRA)
        size = int.from_bytes(raw[at : at + 4], "big")
        stored = unpack(raw[at + 4 : at + 4 + size])
        extra = Extra(flow=stored[3] and bytes.fromhex(stored[3]), unique=stored[4])
    return rare, extra


class Audit:
    """One look at a namespace."""

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self.typed = typed(server, namespace)
        self.all = {key: value for key, (kind, value) in self.typed.items() if kind in READERS}
        self.faults: list[str] = []
        self.run: dict[bytes, bytes] = self.hash(b"run")
        self.jobs: dict[bytes, Head] = {}
        self.expires: dict[bytes, int] = {}
        self.cause: dict[bytes, str] = {}
        self.flow: dict[bytes, bytes] = {}
        self.unique: dict[bytes, str] = {}
        for id, raw in self.hash(b"J").items():
            head = head_of(raw)
            assert head is not None
            rare, extra = parts(raw, head.flags)
            self.jobs[id] = head
            self.cause[id] = rare.cause
            if extra.flow is not None:
                self.flow[id] = extra.flow
            if extra.unique is not None:
                self.unique[id] = extra.unique
            if rare.expires_ms is not None:
                self.expires[id] = rare.expires_ms
        self.classes = {kind: unpack(body) for kind, body in self.hash(b"cl").items()}

    def look(self) -> list[str]:
        """What is wrong, in words; nothing in a sound namespace."""
        self.names()
        self.waiting()
        self.ready()
        self.finished()
        self.ledger()
        self.flows()
        self.keys()
        self.leases()
        self.listed_gates()
        self.dependencies()
        self.beside()
        self.counters()
        self.memory()
        return self.faults

    # -- reading

    def hash(self, name: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.all.get(name, {})
        return {field: value for field, value in found.items() if field}  # see keep_unpacked in lib/tx.lua

    def named(self, prefix: bytes) -> dict[bytes, Any]:
        return {key[len(prefix) :]: value for key, value in self.all.items() if key.startswith(prefix)}

    def same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.faults.append(f"{what}: {found!r} should be {expected!r}")

    def queue_task(self, head: Head) -> tuple[str, str]:
        body = self.classes[self.hash(b"ln")[head.lane][:8]]
        return body[0], body[1]

    def waits(self, id: bytes) -> bool:
        return self.jobs[id].state <= READY and id not in self.run

    def state(self, id: bytes) -> int:
        return RUNNING if id in self.run else self.jobs[id].state

    def of_state(self, *states: int) -> dict[bytes, Head]:
        return {id: head for id, head in self.jobs.items() if self.state(id) in states}

    # -- looking

    def names(self) -> None:
        for key, (kind, _) in self.typed.items():
            if key == OF_THE_NEXT_RELEASE:
                continue
            types = [KEYS[name].type.replace("sorted set", "zset").encode() for name in names_of(key)]
            self.same(f"types of {key!r} in the map of keys", types, [kind])

    def waiting(self) -> None:
        blocked = {id: b"%d" % head.seq for id, head in self.of_state(BLOCKED).items()}
        self.same("blocked", self.hash(b"bl"), blocked)
        levels: dict[bytes, set[bytes]] = defaultdict(set)
        for id, head in self.of_state(SCHEDULED).items():
            levels[b"%d" % self.hash(b"ln")[head.lane][24]].add(item(id, head))
        self.same("scheduled", {level: set(items) for level, items in self.named(b"Z:").items()}, levels)
        for level, items in levels.items():
            timer = float(self.hash(b"T").get(b"z" + level, b"inf"))
            due_ms = int.from_bytes(min(items)[:6], "big")
            if timer > due_ms and due_ms < LAST_MS:
                self.faults.append(f"nobody looks at level {level!r} in time")
        expected = {at.to_bytes(6, "big") + id for id, at in self.expires.items() if self.waits(id)}
        indexed = {entry for entry in self.hash(b"E") if entry[6:] not in self.run}
        self.same("expiring", indexed, expected)

    def ready(self) -> None:
        places: Counter[tuple[bytes, bytes]] = Counter()
        for lane, items in (*self.named(b"L:").items(), *self.named(b"R:").items()):
            places.update((lane, each) for each in items)
        for id, head in self.of_state(READY).items():
            if not places[head.lane, item(id, head)]:  # one that was put off and back again may stand there twice
                self.faults.append(f"{id.hex()} is ready and in no lane")
            if head.lane not in self.hash(b"ls"):
                self.faults.append(f"the lane of {id.hex()} has ready jobs and is idle")
        for lane, items in self.named(b"L:").items():
            self.same(f"order of {lane.hex()}", items, sorted(items))
        stored = Counter(head.lane for head in self.jobs.values())
        counted = {lane: int(n) for lane, n in self.hash(b"lj").items() if int(n)}
        self.same("jobs of lanes", counted, dict(stored))
        lanes_of = Counter(definition[:8] for definition in self.hash(b"ln").values())
        self.same("lanes of classes", {kind: int(n) for kind, n in self.hash(b"ck").items()}, dict(lanes_of))
        self.same("classes", set(self.classes), set(lanes_of))
        empty = {lane for lane in self.hash(b"ln") if lane not in stored}
        self.same("empty lanes", set(self.hash(b"lz")), empty)

    def finished(self) -> None:
        expected: dict[bytes, set[bytes]] = defaultdict(set)
        for id, head in self.of_state(SUCCEEDED, DEAD, CANCELLED).items():
            name = f"{head.state}{self.queue_task(head)[0]}".encode()
            expected[name].add(head.finished_ms.to_bytes(6, "big") + id)
        found: dict[bytes, set[bytes]] = defaultdict(set)
        for name, members in self.named(b"F:").items():
            found[name] = {m[:6] + m[at : at + 16] for m in members for at in range(6, len(m), 16)}
        self.same("finished", found, expected)
        counts = {name[1:]: len(entries) for name, entries in expected.items() if name[:1] == b"4"}
        self.same("succeeded jobs kept", {queue: int(n) for queue, n in self.hash(b"fc").items()}, counts)
        for id, head in self.jobs.items():
            self.same(f"end of {id.hex()}", head.finished_ms > 0, self.state(id) >= SUCCEEDED)

    def ledger(self) -> None:
        found: dict[int, bytes] = {}
        for chunk, ids in self.named(b"X:").items():
            slots = [ids[at : at + 16] for at in range(0, len(ids), 16)]
            found |= {int(chunk) * 64 + slot: id for slot, id in enumerate(slots) if id != bytes(16)}
        self.same("ledger", found, {head.seq: id for id, head in self.jobs.items()})
        chunks = Counter(seq // 64 for seq in found)
        self.same("chunk counts", {int(c): int(n) for c, n in self.hash(b"XN").items()}, dict(chunks))
        self.same("chunks", {int(c) for c in self.hash(b"XL")}, set(chunks))

    def flows(self) -> None:
        expected: dict[bytes, set[int]] = defaultdict(set)
        for id, flow in self.flow.items():
            expected[flow].add(self.jobs[id].seq)
        self.same("flows", set(self.hash(b"fw")), set(expected))
        stored = {head.seq for head in self.jobs.values()}
        found: dict[bytes, set[int]] = defaultdict(set)
        for flow, members in self.named(b"fl:").items():
            for member in members:
                first, last = int.from_bytes(member[:6], "big"), int.from_bytes(member[6:], "big")
                if first not in stored:
                    self.faults.append(f"a range of {flow.hex()} begins with nobody")
                found[flow] |= stored & set(range(first, last + 1))
        self.same("jobs of flows", found, expected)

    def keys(self) -> None:
        holders = {(key, entry[:16]) for key, entry in self.hash(b"U").items()}
        expected: dict[bytes, dict[bytes, bytes]] = defaultdict(dict)
        for id, key in self.unique.items():
            head = self.jobs[id]
            if (f"{self.queue_task(head)[1]}\0{key}".encode(), id) not in holders:
                expected[key.encode()][id] = b"%d" % head.seq
        self.same("former holders of keys", self.named(b"uh:"), expected)

    def leases(self) -> None:
        held: dict[int, set[bytes]] = defaultdict(set)
        charged: list[Running] = []
        for id, running in self.run.items():
            if id not in self.jobs:
                self.faults.append(f"{id.hex()} runs and is not stored")
            token, claimed_ms = int.from_bytes(running[:7], "big"), int.from_bytes(running[7:13], "big")
            held[token].add(id)
            if len(running) > 13:
                charged.append((token, claimed_ms, unpack(running[13:], type=list[Charge])))
        leases = {int(token): unpack(body)[:2] for token, body in self.hash(b"le").items()}  # a third: handed off
        self.same(
            "jobs left of leases", {t: left for t, (_, left) in leases.items()}, {t: len(x) for t, x in held.items()}
        )
        for token, ids in held.items():
            packed = self.all.get(b"b:%d" % token, b"")
            if not ids <= {packed[at : at + 16] for at in range(0, len(packed), 16)}:
                self.faults.append(f"lease {token} does not name all that it holds")
        self.same("packed leases", {int(token) for token in self.named(b"b:")}, set(leases))
        by_session: dict[bytes, set[bytes]] = defaultdict(set)
        for token, (session, _) in leases.items():
            by_session[session.encode()].add(b"%d" % token)
        self.same("leases of sessions", {name: set(tokens) for name, tokens in self.named(b"st:").items()}, by_session)
        if not set(self.hash(b"H")) <= {b"%d" % token for token in leases}:
            self.faults.append("a deadline of no lease")
        for account in accounts((unpack(body, type=Gate) for body in self.hash(b"g").values()), charged):
            key = account.gate.key
            self.same(f"slots of {key}", account.gate.used, account.slots)
            self.same(f"uncounted reservations of {key}", account.uncounted, 0)
            self.same(f"{key} waits for a probe that nobody runs", account.stuck, False)

    def listed_gates(self) -> None:
        gates = [unpack(body, type=Gate) for body in self.hash(b"g").values()]
        self.same("drains", set(self.all.get(b"dr", ())), {gate.key.encode() for gate in gates if gate.draining})
        bounded = {gate.key.encode() for gate in gates if gate.rule.depth or gate.rule.tenant_depth}
        self.same("queues with a depth", set(self.all.get(b"dp", ())), bounded)
        ranked = {f"{place}{gate.key}".encode() for gate in gates if (place := rank(gate)) is not None}
        self.same("breakers, worst first", set(self.hash(b"bk")), ranked)

    def dependencies(self) -> None:
        open_pairs = set()
        for child, deps in self.named(b"d:").items():
            if child not in self.jobs:
                self.faults.append(f"dependencies of {child.hex()}, which is not stored")
                continue
            parents = {parent for parent, value in deps.items() if parent != b"#" and value[:1] == b"o"}
            self.same(f"open parents of {child.hex()}", int(deps.get(b"#", 0)), len(parents))
            open_pairs |= {(parent, child) for parent in parents if parent in self.jobs}
            if (self.jobs[child].state == BLOCKED) != bool(parents) and self.jobs[child].state != CANCELLED:
                self.faults.append(f"{child.hex()} is in state {self.state(child)} with open parents {parents}")
        listed = {(parent, child) for parent, children in self.named(b"c:").items() for child in children}
        self.same("children", listed, open_pairs)
        for parent, _ in listed:
            if parent in self.jobs and not self.jobs[parent].flags & KIDS:
                self.faults.append(f"{parent.hex()} does not know of its children")

    def beside(self) -> None:
        for flag, found in (
            (BODY, set(self.hash(b"B"))),
            (RESULT, set(self.hash(b"res"))),
            (NOTES, set(self.named(b"no:"))),
            (ATTEMPTS, set(self.named(b"at:"))),
        ):
            self.same(f"flag {flag}", found, {id for id, head in self.jobs.items() if head.flags & flag})
        gone = {entry[:16] for key, entry in self.hash(b"U").items() if entry[:16] not in self.jobs}
        orphans = {self.hash(b"U")[key][:16] for key in self.hash(b"UO")}
        self.same("keys of jobs that are gone", gone, orphans)

    def counters(self) -> None:
        expected: Counter[bytes] = Counter()
        causes: Counter[bytes] = Counter()
        crowds: Counter[bytes] = Counter()
        for id, head in self.jobs.items():
            queue, task = self.queue_task(head)
            expected[f"{queue}\0{task}\0{self.state(id)}".encode()] += 1
            tenant = unpack(self.hash(b"ln")[head.lane][26:])[3]
            if tenant is not None and self.waits(id):
                crowds[f"{queue}\0{tenant}".encode()] += 1
            if head.state == DEAD:
                causes[f"{self.cause[id]}\0{queue}\0{task}".encode()] += 1
        found = {key: int(n) for key, n in self.hash(b"n").items() if not key.startswith(b"\0\0")}
        self.same("counts", found, dict(expected))
        self.same("waiting by tenant", {key: int(n) for key, n in self.hash(b"wt").items()}, dict(crowds))
        self.same("causes", {key: unpack(body)[0] for key, body in self.hash(b"ca").items()}, dict(causes))

    def memory(self) -> None:
        sizes: Counter[bytes] = Counter()
        for bucket, ids in self.named(b"G:").items():
            sizes[bucket[:5]] += len(ids) // 17  # what a full bucket has no room for lies in parts of it
        counts = {bucket: int(n) for bucket, n in self.hash(b"GN").items()}
        self.same("ids remembered", counts.pop(b"#", 0), sum(counts.values()))
        self.same("buckets", counts, dict(sizes))
        self.same("when buckets go", set(self.hash(b"GL")), set(sizes))


def item(id: bytes, head: Head) -> bytes:
    """What stands for the job in a lane or on the schedule."""
    return head.due_ms.to_bytes(6, "big") + head.seq.to_bytes(6, "big") + id


def faults(server: RedisServer, namespace: str) -> list[str]:
    """Where the places of a namespace disagree."""
    return Audit(server, namespace).look()
