"""Releases share a namespace while the later layout only adds. A layout that is not for this release is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet.core.errors import SchemaOutdated
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note, Signal
from limpet.core.jobs.view import Control, Entry, Retention
from limpet.stores.redis.fields import RARE
from limpet.stores.redis.record import HEAD_BYTES, head_of
from limpet.stores.redis.scripts import names, source
from tests.engines.redis.audit import everything
from tests.engines.redis.place import Place
from tests.next_release import REDIS, REDIS_FOR_ITSELF, next_release, run

# What the next release does on a namespace: one word each. It prints ids.
NEXT = """
import asyncio, json, os, sys
from limpet.core.jobs.job import Unique
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock

async def main():
    url, namespace, now_ms, *steps = sys.argv[1:]
    bench = Bench(open_store(url, namespace), Clock(int(now_ms)))
    hand, ids = bench.hand(f"next {os.getpid()}"), []
    for step in steps:
        if step == "add":
            ids.append(await bench.add())
            ids.append(await bench.add(unique=Unique("k"), tags=("a",), costs={"usd": 2}, flow=bench.id()))
            ids.append(await bench.add(after=(ids[0],)))
        elif step == "fail":
            jobs = await hand.claim(100)
            for job in jobs:
                await hand.fail(job)
            ids.extend(job.id for job in jobs)
        elif step == "run":
            while jobs := await hand.claim(100):
                await hand.succeed(*jobs, result=b"1")
                ids.extend(job.id for job in jobs)
    await bench.check_books()
    await bench.store.close()
    print(json.dumps([id.hex() for id in ids]))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def additive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next_release(tmp_path_factory.mktemp("additive"), REDIS)


@pytest.fixture(scope="module")
def for_itself(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next_release(tmp_path_factory.mktemp("for_itself"), REDIS_FOR_ITSELF)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    yield place
    await place.store.close()


def by_next(release: Path, place: Place, *steps: str) -> list[bytes]:
    printed = run(release, NEXT, place.server.url, place.namespace, str(place.clock.now_ms), *steps)
    return [bytes.fromhex(id) for id in json.loads(printed)]


def layout(place: Place) -> tuple[Any, Any]:
    layout, min_client = place.server.ask("HMGET", place.key("m"), "layout", "min_client")
    return layout, min_client


def raw_of(place: Place, id: bytes) -> bytes:
    raw = place.server.ask("HGET", place.key("J"), id)
    assert isinstance(raw, bytes)
    return raw


def part_of(raw: bytes) -> Any:
    """What follows the head of a record, unpacked."""
    size = int.from_bytes(raw[HEAD_BYTES : HEAD_BYTES + 4], "big")
    return msgspec.msgpack.decode(raw[HEAD_BYTES + 4 : HEAD_BYTES + 4 + size])


async def test_a_namespace_begins_at_layout_1(place: Place) -> None:
    assert layout(place) == (None, None)
    await place.add()
    assert layout(place) == (b"1", b"1")


async def test_jobs_of_a_later_layout_run_here(place: Place, additive: Path) -> None:
    first, rich, child = by_next(additive, place, "add")
    assert layout(place) == (b"2", b"1")
    assert part_of(raw_of(place, rich))[-1] == "eu", "the next release writes more than this one reads"
    view = await place.view(rich)
    assert (view.unique, view.tags, view.costs) == ("k", ("a",), {"usd": 2})
    assert place.sound()
    hand = place.hand()
    jobs = await hand.claim(10)
    assert {job.id for job in jobs} == {first, rich}
    await hand.succeed(*jobs)
    assert await hand.drain() == [child]
    await place.check_books()
    assert place.sound()
    assert layout(place) == (b"2", b"1"), "it stays the highest that was there"


async def test_jobs_of_this_layout_run_there_and_come_back(place: Place, additive: Path) -> None:
    await place.declare(GateRule("limit:r", concurrency=2))
    ids = [await place.add(), await place.add(unique=Unique("k"), flow=place.id()), await place.add(limits=("r",))]
    await place.add(after=tuple(ids))
    assert set(by_next(additive, place, "fail")) == set(ids)
    raw = raw_of(place, ids[0])
    head = head_of(raw)
    assert head is not None
    assert head.flags & RARE
    assert part_of(raw)["region"] == "eu", "the next release adds to what scripts wrote"
    assert place.sound()
    place.clock.advance(600_000)
    hand = place.hand()
    again = await hand.claim(10)
    assert {(job.id, job.attempt) for job in again} == {(id, 2) for id in ids}
    await hand.release(*again)
    assert part_of(raw_of(place, ids[0]))["region"] == "eu", "this release keeps what it does not know"
    assert len(by_next(additive, place, "run")) == 4
    await place.check_books()
    assert place.sound()


async def test_what_a_release_refused_stays_refused_under_a_later_one(
    place: Place, for_itself: Path, tmp_path: Path
) -> None:
    third = next_release(tmp_path, {"stores/redis/lua/lib/base.lua": {"base.LAYOUT = 1": "base.LAYOUT = 3"}})
    by_next(for_itself, place, "add")
    by_next(third, place, "run")
    assert layout(place) == (b"3", b"2")


CHANGES: dict[str, Callable[[Place, bytes], Awaitable[object]]] = {
    "enqueue": lambda place, _: place.add(),
    "enqueue a rich one": lambda place, _: place.add(unique=Unique("k"), flow=place.id()),
    "relay": lambda place, _: place.store.relay("orders", 1, [place.job()]),
    "beat": lambda place, _: place.hand().beat(),
    "claim": lambda place, _: place.hand().ask(1),
    "leave": lambda place, _: place.store.leave("s"),
    "expire": lambda place, _: place.store.expire(),
    "held": lambda place, _: place.store.held("s"),
    "cancel": lambda place, id: place.cancel(id),
    "retry": lambda place, id: place.retry(id),
    "discard": lambda place, id: place.store.discard([id]),
    "save": lambda place, id: place.store.save(id, 1, Note("step", "a", b"1")),
    "signal": lambda place, id: place.signal(Signal(id, "go", b"1")),
    "watch": lambda place, id: place.store.watch(id, 1),
    "get": lambda place, id: place.store.get([id]),
    "change_gates": lambda place, _: place.change(GateChange("limit:r", hold_ms=1_000)),
    "put_control": lambda place, _: place.store.put_control(Control("task", "t", b"{}")),
    "append": lambda place, _: place.store.append([Entry("audit", place.clock.now_ms, "k")]),
    "prune": lambda place, _: place.store.prune(Retention(succeeded_ms=0)),
}


async def test_a_layout_that_is_not_for_this_release_is_refused_with_the_fix_and_left_alone(
    place: Place, for_itself: Path
) -> None:
    (id, *_) = by_next(for_itself, place, "add")
    before = everything(place.server, place.namespace)
    assert layout(place) == (b"2", b"2")
    for verb, change in CHANGES.items():
        with pytest.raises(SchemaOutdated, match="layout 2, this release knows 1") as caught:
            await change(place, id)
        assert caught.value.fix == "upgrade limpet"
        assert everything(place.server, place.namespace) == before, verb


async def test_a_claim_and_an_end_are_refused_though_this_release_was_at_work_before(
    place: Place, for_itself: Path
) -> None:
    id = await place.add()
    hand = place.hand()
    job = await hand.take()
    by_next(for_itself, place, "add")
    before = everything(place.server, place.namespace)
    with pytest.raises(SchemaOutdated):
        await hand.succeed(job)
    with pytest.raises(SchemaOutdated):
        await hand.ask(1)
    assert everything(place.server, place.namespace) == before
    assert job.id == id


@pytest.mark.parametrize("name", names())
def test_every_script_asks_first_whether_the_layout_is_for_it(name: str) -> None:
    head = "local refused = tx.begin()\nif refused then\n  return refused\nend"
    code = "\n".join(line for line in source(f"{name}.lua").splitlines() if not line.startswith("--"))
    before, found, _ = code.partition(head)
    assert found
    assert "call(" not in before
