"""A job's record is the same to Python and to the scripts, and one that is spoilt is recognised by both."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.jobs.job import Job, Lane, Policy, Unique
from limpet.core.jobs.lease import Input, Note
from limpet.core.jobs.state import State
from limpet.stores.redis.definition_cache import class_value, lane_of, lane_value
from limpet.stores.redis.fields import BODY, EXTRA, RARE
from limpet.stores.redis.record import (
    Beside,
    claimed_of,
    head_of,
    id8,
    inputs_of,
    notes_of,
    tail_of,
)
from limpet.stores.redis.scripts import source
from limpet.stores.redis.views import Parts, view_of
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared

T0 = 1_700_000_000_000
TOKEN = T0 * 2048 + 7
LANE = Lane("mail", "send")
POLICY = Policy(attempts=3)
LANES, POLICIES = {id8(LANE.id): LANE}, {id8(POLICY.id): POLICY}

# Opens a record as every script does, says what it read, and writes it again with what scripts add.
OPEN = """
local r = record.open(ARGV[1], ARGV[2])
if not r then
  return false
end
local plain, extra = record.close(r), record.extra(r)
r.rare.e, r.rare.hs, r.rare.r, r.rare.c, r.rare.t = 1700000000001, 1700000000002, "it broke", "cause", "Oops"
r.attempt, r.lost, r.held, r.claimed, r.finished, r.state = 2, 1, 3, 1700000000003, 1700000000004, 5
local cost, key, states = record.cost(extra, ""), extra[5] or "", extra[7] or 0
local usd = base.text(record.cost(extra, "usd"))
return {plain, record.close(r), r.flags, r.seq, r.due, r.enq, r.lane, r.policy, cost, key, states, usd}
"""


@pytest.fixture(scope="module")
def server() -> RedisServer:
    return shared(REDIS)


def opened(server: RedisServer, raw: bytes) -> Any:
    text = source("lib/base.lua") + source("lib/record.lua") + OPEN
    return server.ask("EVAL", text, 1, "{limpet:record}:m", b"i" * 16, raw)


def raw_of(job: Job) -> bytes:
    """A record as enqueue writes it."""
    flags, tail = tail_of(job)
    head = struct.pack(">BBHHHHHIHIHI", 1, 2, flags, 0, 0, 0, 0, 77, *six(T0 + 5), *six(T0))
    return head + id8(job.lane.id) + id8(job.policy.id) + bytes(12) + tail


def six(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF


IDS = st.binary(min_size=16, max_size=16)
TEXTS = st.text(max_size=12)
JOBS = st.builds(
    Job,
    IDS,
    st.just(LANE),
    st.just(POLICY),
    args=st.binary(max_size=40) | st.binary(min_size=1020, max_size=1030),
    unique=st.none() | st.builds(Unique, TEXTS, states=st.frozensets(st.sampled_from(State))),
    after=st.lists(IDS, max_size=3).map(tuple),
    if_parent_fails=st.sampled_from(["cancel", "run", "wait"]),
    cost=st.integers(0, 1 << 40),
    tags=st.lists(TEXTS, max_size=3).map(tuple),
    meta=st.sampled_from([b"", b"{}", '{"trace":"ü"}'.encode()]),
    flow=st.none() | IDS,
    costs=st.dictionaries(st.sampled_from(["usd", "words", "ü"]), st.integers(0, 1 << 53)),
)


@given(JOBS)
def test_what_is_packed_is_what_is_read(job: Job) -> None:
    raw = raw_of(job)
    head = head_of(raw)
    assert head is not None
    assert (head.state, head.seq, head.due_ms, head.enqueued_ms) == (2, 77, T0 + 5, T0)
    args = job.args if head.flags & BODY else None
    claimed = claimed_of(job.id, raw, TOKEN, T0 + 9, LANES, POLICIES, Beside(args, after=job.after))
    assert claimed is not None
    view = view_of(job.id, Parts(raw, args=args, after=job.after), LANES, POLICIES)
    assert view is not None
    for seen in (claimed, view):
        assert (seen.id, seen.lane, seen.policy, seen.args) == (job.id, LANE, POLICY, job.args)
        assert (seen.cost, seen.tags, seen.meta, seen.flow) == (job.cost, job.tags, job.meta, job.flow)
        assert seen.costs == job.costs
        assert (seen.enqueued_at_ms, seen.due_at_ms, seen.lost, seen.held) == (T0, T0 + 5, 0, 0)
    assert (claimed.token, claimed.attempt, claimed.claimed_at_ms) == (TOKEN, 1, T0 + 9)
    assert (view.after, view.unique) == (job.after, None if job.unique is None else job.unique.key)
    assert view.state is State.ready
    if head.flags & EXTRA:
        assert view.if_parent_fails == job.if_parent_fails


@given(JOBS)
def test_scripts_read_and_write_the_same_record(server: RedisServer, job: Job) -> None:
    raw = raw_of(job)
    plain, rewritten, flags, seq, due, enqueued, lane, policy, cost, key, states, usd = opened(server, raw)
    assert plain == raw
    assert (seq, due, enqueued, lane, policy) == (77, T0 + 5, T0, id8(LANE.id), id8(POLICY.id))
    assert (cost, int(usd)) == (job.cost_in(""), job.cost_in("usd"))
    if flags & EXTRA:
        assert key.decode() == ("" if job.unique is None else job.unique.key)
        assert states == (0 if job.unique is None else sum(1 << state.code for state in job.unique.states))
    view = view_of(job.id, Parts(rewritten, args=job.args), LANES, POLICIES)
    assert view is not None
    assert (view.state, view.attempt, view.lost, view.held) == (State.dead, 2, 1, 3)
    assert (view.expires_at_ms, view.claimed_at_ms, view.finished_at_ms) == (T0 + 1, T0 + 3, T0 + 4)
    assert (view.reason, view.cause, view.error_type) == ("it broke", "cause", "Oops")
    assert (view.args, view.tags, view.unique) == (job.args, job.tags, job.unique and job.unique.key)
    claimed = claimed_of(job.id, rewritten, TOKEN, T0, LANES, POLICIES, Beside(job.args))
    assert claimed is not None
    assert (claimed.attempt, claimed.held_since_ms) == (3, T0 + 2)


def test_what_a_later_layout_adds_to_a_record_is_passed_over(server: RedisServer) -> None:
    flags, tail = tail_of(Job(b"j" * 16, LANE, POLICY, b"{}", cost=7, costs={"usd": 9}))
    assert flags == EXTRA
    packed = msgspec.msgpack.encode([*msgspec.msgpack.decode(tail[4:-3]), "eu"])
    raw = RICH[:56] + struct.pack(">I", len(packed)) + packed + tail[-3:]
    claimed = claimed_of(b"j" * 16, raw, TOKEN, T0, LANES, POLICIES)
    assert claimed is not None
    assert (claimed.cost, claimed.costs, claimed.args) == (7, {"usd": 9}, b"{}")
    answer = opened(server, raw)
    assert (answer[0], answer[8], answer[-1]) == (raw, 7, b"9")


def test_what_a_later_layout_adds_to_what_scripts_wrote_is_kept(server: RedisServer) -> None:
    rare = msgspec.msgpack.encode({"r": "why", "region": "eu"})
    raw = PLAIN[:2] + struct.pack(">H", RARE) + PLAIN[4:56] + struct.pack(">I", len(rare)) + rare + PLAIN[56:]
    rewritten = opened(server, raw)[1]
    assert b"region" in rewritten
    view = view_of(b"j" * 16, Parts(rewritten), LANES, POLICIES)
    assert view is not None
    assert view.reason == "it broke"


def test_a_running_job_shows_its_holder() -> None:
    run = TOKEN.to_bytes(7, "big") + (T0 + 8).to_bytes(6, "big") + b"charges"
    job = Job(b"j" * 16, LANE, POLICY, b"{}")
    view = view_of(job.id, Parts(raw_of(job), run, b"w1"), LANES, POLICIES)
    assert view is not None
    assert (view.state, view.attempt, view.token, view.session) == (State.running, 1, TOKEN, "w1")
    assert view.claimed_at_ms == T0 + 8


PLAIN = raw_of(Job(b"j" * 16, LANE, POLICY, b"{}"))
RICH = raw_of(Job(b"j" * 16, LANE, POLICY, b"{}", tags=("a",)))
SPOILT = {
    "nothing": b"",
    "half a head": PLAIN[:30],
    "another version": b"\x02" + PLAIN[1:],
    "another version of a rich one": b"\x02" + RICH[1:],
    "another lane": PLAIN[:28] + bytes(8) + PLAIN[36:],
    "another policy": PLAIN[:36] + bytes(8) + PLAIN[44:],
    "a packed part that is none": RICH[:56] + struct.pack(">I", 3) + b"\xc1\xc1\xc1" + b"{}",
    "a packed part cut short": RICH[:58],
    "a packed part longer than the record": RICH[:56] + struct.pack(">I", 9_999) + RICH[60:],
    "a rare part that is none": PLAIN[:2] + struct.pack(">H", RARE) + PLAIN[4:56] + struct.pack(">I", 2) + b"\xc1\xc1",
    "large arguments that are gone": PLAIN[:2] + struct.pack(">H", BODY) + PLAIN[4:],
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_record_is_recognised(name: str) -> None:
    assert claimed_of(b"j" * 16, SPOILT[name], TOKEN, T0, LANES, POLICIES) is None


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_record_is_shown_as_far_as_it_can_be_read(server: RedisServer, name: str) -> None:
    view = view_of(b"j" * 16, Parts(SPOILT[name]), LANES, POLICIES)
    if head_of(SPOILT[name]) is None:
        assert view is None
        assert opened(server, SPOILT[name]) is None
    else:
        assert view is not None
        assert view.state is State.ready
    if "part" in name:
        assert view is not None
        assert view.tags == ("undecodable",)


def test_inputs_and_notes_are_read_from_their_hashes() -> None:
    one, two, three, four = (bytes((n,)) * 16 for n in range(4))
    flat = [one, b"r[1]", two, b"n", three, "ffür immer".encode(), four, b"ocancel", b"#", b"1"]
    assert inputs_of(flat) == {one: Input(b"[1]"), two: Input(), three: Input(None, "für immer")}
    notes = [b"step\0b", b"2", b"step\0a", b"1", b"checkpoint\0", b"\0x"]
    assert notes_of(notes) == (Note("checkpoint", "", b"\0x"), Note("step", "a", b"1"), Note("step", "b", b"2"))


@pytest.mark.parametrize(
    ("lane", "flags"),
    [
        (LANE, 0),
        (Lane("q", "t", 0, "acme"), 8),
        (Lane("q", "t", 9, None, ("gpu",), ("smtp",), (), "api"), 2),
        (Lane("q", "t", breaker="api"), 2),
        (Lane("q", "t", scope="old"), 0),
        (Lane("q", "t", keys=("customer:1",)), 3),
        (Lane("q", "t", 5, "acme", keys=("customer:1",)), 15),
    ],
)
def test_a_lane_is_stored_with_what_scripts_ask_first(lane: Lane, flags: int) -> None:
    value = lane_value(lane)
    assert lane_of(value) == lane
    assert value[:24] == id8(lane.kind) + id8(lane.member) + id8(lane.ring)
    assert (value[24], value[25]) == (lane.priority, flags)
    body = msgspec.msgpack.decode(class_value(lane))
    ruled = [list(lane.limits), lane.breaker, lane.keyed]
    assert body == [lane.queue, lane.task, list(lane.needs), *ruled, lane.task_scope]
