"""Names every key of a namespace: scripts say `K.jobs`, Python says `K.jobs`, and the server stores a letter or two.

A name is resolved when a script is built, so it costs nothing when the script runs. `docs/reference/redis-keys.md` is
written from this table.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Type = Literal["hash", "list", "set", "sorted set", "stream", "string"]


class Key(msgspec.Struct, frozen=True):
    """One key, or with a `per` a family of keys: what is stored there, and what removes it again."""

    stored: str  # the name on the server, behind the prefix of the namespace; that of a family ends before its `per`
    type: Type
    holds: str
    removed: str
    per: str = ""

    def under(self, meta: bytes, rest: bytes = b"") -> bytes:
        """The whole key in the namespace whose first key is `meta`; `rest` says which one of a family."""
        return meta[:-1] + self.stored.encode() + rest


def meta_key(tag: str) -> bytes:
    """The first key of a namespace, which every script is given: the others are made from it."""
    return f"{{{tag}}}:{K.meta.stored}".encode()


class K:
    """Every key there is."""

    # -- the store as a whole
    meta = Key(
        "m",
        "hash",
        "layout and min_client; the last token, turn, arrival number (seq) and log line (log); swept, calm and shift "
        "of the sweeps; recount and counted of a repair; the store's own name (store)",
        "never",
    )
    answers = Key("once:", "string", "the answer of a call that must not happen twice", "60 s", per="name of the call")
    counters = Key(
        "n",
        "hash",
        "queue \\0 task \\0 state code → jobs in that state; \\0 \\0 code → how many ever were enqueued, succeeded, …",
        "the last job of that state",
    )
    queues = Key("qs", "set", "queues that have or had jobs", "prune, when neither a class nor a gate is left")
    controls = Key("ct:", "hash", "name → version(8) and value of a named record", "never", per="kind")
    logs = Key("lg:", "stream", "lines: t instant, v msgpack line", "prune", per="log")
    causes = Key(
        "ca", "hash", "cause \\0 queue \\0 task → msgpack count and sample of dead jobs", "the last dead job of it"
    )

    # -- jobs
    jobs = Key("J", "hash", "id → record", "prune or discard")
    large_args = Key("B", "hash", "id → arguments that are too large for the record", "with the job")
    results = Key("res", "hash", "id → result", "with the job")
    running = Key("run", "hash", "id → token(7), instant of the claim(6), msgpack charges", "settle or a sweep")
    notes = Key("no:", "hash", "kind \\0 name → body: steps, checkpoint, events, log lines", "with the job", per="id")
    attempts = Key("at:", "list", "msgpack of every run that is worth a line", "with the job", per="id")
    watchers = Key("wa:", "set", "mailboxes that are told of the end", "the end of the job, or a day", per="id")

    # -- where jobs wait
    ready = Key("L:", "list", "ready jobs of a lane in order: due(6) seq(6) id(16)", "claim", per="lane")
    ready_aside = Key("R:", "sorted set", "ready jobs that came out of order, the same items", "claim", per="lane")
    oldest_ready = Key(
        "hd:",
        "sorted set",
        "lane by a lower bound of when its first job became ready",
        "the rest of the lane",
        per="queue",
    )
    scheduled = Key("Z:", "sorted set", "scheduled jobs: due(6) seq(6) id(16)", "when they are due", per="priority")
    blocked = Key("bl", "sorted set", "id of each blocked job by its arrival", "the end of its last open parent")
    expiring = Key(
        "E", "sorted set", "expires(6) id(16) of jobs that must start in time", "the first claim, or a sweep"
    )
    timers = Key(
        "T",
        "sorted set",
        "z and a priority, or g and a gate, by the instant at which time alone lets something go on",
        "claim, when it is due",
    )

    # -- indexes of jobs
    ledger = Key("X:", "string", "64 ids in the order of arrival", "the last of its jobs", per="chunk")
    ledger_counts = Key("XN", "hash", "chunk → jobs in it", "with the chunk")
    ledger_chunks = Key("XL", "sorted set", "chunk by its number", "with the chunk")
    finished = Key(
        "F:",
        "sorted set",
        "finished(6) and id(16), or the ids of up to 64 that succeeded together",
        "prune, discard or a retry",
        per="state code and queue",
    )
    kept = Key("fc", "hash", "queue → succeeded jobs that are stored", "the last of them")
    flows = Key("fw", "sorted set", "flow", "the last of its jobs")
    flow_ranges = Key(
        "fl:", "sorted set", "first(6) last(6) arrival number of jobs", "the last of its jobs", per="flow"
    )
    unique_keys = Key(
        "U",
        "hash",
        "task \\0 key → id(16) states(1) end of the window(6) of the holder",
        "with the job, after the window",
    )
    unique_windows = Key("UO", "sorted set", "key of an erased job by the end of its window", "prune, after the window")
    former_holders = Key(
        "uh:", "sorted set", "id of jobs that held the key before, by arrival", "with the job", per="key"
    )
    erased = Key(
        "G:", "string", "id(16) and state(1) of erased jobs", "prune, ten minutes later", per="first 5 bytes of ids"
    )
    erased_until = Key("GL", "sorted set", "bucket of erased ids by when it may go", "with the bucket")
    erased_counts = Key("GN", "hash", "bucket → ids in it; # → all of them", "with the bucket")

    # -- jobs that wait for others
    parents = Key(
        "d:",
        "hash",
        "parent → o and mode while it is open, r result, n nothing, f why; # open; @ named",
        "with the job",
        per="id",
    )
    children = Key("c:", "sorted set", "id of each child that waits for the job", "the end of the job", per="id")
    graph_todo = Key(
        "fan", "set", "msgpack of walks through very many children that are not done yet", "claim or a sweep"
    )
    graph_walks = Key(
        "rv", "hash", "parent → walks of it in graph_todo: it hands nothing on before them", "with the last walk"
    )

    # -- lanes
    lanes = Key(
        "ln",
        "hash",
        "lane → class(8) member(8) ring(8) priority(1) flags(1) msgpack definition",
        "prune, when it is empty",
    )
    lane_states = Key(
        "ls", "hash", "lane → a active, or w and the gate at which it waits; idle without one", "its last ready job"
    )
    lane_jobs = Key("lj", "hash", "lane → jobs that are stored, finished ones included", "with the lane")
    empty_lanes = Key("lz", "sorted set", "lane without a stored job", "prune, or its next job")
    classes = Key("cl", "hash", "class → msgpack queue, task, needs, limits, breaker, keyed", "its last lane")
    class_lanes = Key("ck", "hash", "class → its lanes", "its last lane")
    policies = Key("po", "hash", "policy → JSON", "never")
    policy_limits = Key("pm", "hash", "policy → max_lost and hard timeout (- is none)", "never")
    waiting_by_group = Key("wg", "hash", "queue \\0 group → jobs that wait", "the last of them")

    # -- turns
    active_classes = Key("act", "sorted set", "priority(1) ring(8) class(8) with active lanes", "the last of them")
    seats = Key("S:", "sorted set", "member by its turn", "its last active lane", per="class(8) and priority(1)")
    seat_lanes = Key("sl", "hash", "class(8) member(8) → its one active lane", "the rest of the lane")
    member_lanes = Key(
        "A:",
        "sorted set",
        "active lane of a member that may have many, by when it was served",
        "the rest of the lane",
        per="class(8) member(8)",
    )
    turns = Key("tn", "hash", "member or ring → turn(6) left(4) seats(4)", "its last seat")
    weights = Key("wgt", "hash", "queue:Q or group:G → jobs of a turn, where it is not 1", "a weight of 1")
    page_marks = Key(
        "lk", "hash", "signature(8) priority(1) → active class where the last look ended", "with the signature"
    )

    # -- gates
    gates = Key("g", "hash", "gate → msgpack record", "prune, when it rules nothing and remembers nothing")
    gate_classes = Key("gk:", "set", "classes that the gate rules", "with the class", per="gate")
    gate_lanes = Key("gn", "hash", "gate → lanes that it rules", "the last of them")
    waiting_lanes = Key(
        "W:", "sorted set", "lane that waits, by priority and turn", "the opening of the gate", per="class(8) and gate"
    )
    waiting_classes = Key("WC:", "set", "classes with lanes that wait", "the last of those lanes", per="gate")
    draining = Key("dr", "set", "gates that drain", "the end of the drain")
    bounded = Key("dp", "set", "gates of queues with a depth", "the end of that rule")

    # -- sessions and leases
    sessions = Key("S!", "sorted set", "session by its deadline", "leave or a sweep")
    session = Key(
        "s:",
        "hash",
        "sig, serves, info, started, opened, beat, deadline, ear; idle, asked, slots of a sleep",
        "leave or a sweep",
        per="session",
    )
    session_leases = Key(
        "st:", "set", "tokens of the leases that the session has", "the end of each lease", per="session"
    )
    receipts = Key(
        "rc:",
        "hash",
        "claimer, or settle → seq and what was answered to it",
        "with the session, or an hour",
        per="session",
    )
    leases = Key("le", "hash", "token → msgpack session, jobs left", "its last job")
    lease_jobs = Key("b:", "string", "ids of the jobs that the lease was given", "with the lease", per="token")
    hard_deadlines = Key("H", "sorted set", "token by when its jobs have run too long", "with the lease")
    signatures = Key("sd", "hash", "signature → msgpack queues, tasks, capabilities", "prune, when no session has it")
    signature_classes = Key(
        "sv:", "set", "classes that workers of the signature can run", "with either", per="signature"
    )
    class_signatures = Key("cs:", "set", "signatures that can run the class", "with either", per="class")
    sleepers = Key(
        "idle:", "sorted set", "session that sleeps, by 0 (it has a free slot) or 1", "its wake-up", per="signature"
    )
    sleeps_until = Key("nx", "hash", "session → instant until which it sleeps", "its next claim")
    mailbox = Key("ear:", "list", "messages for one event loop: letter and name", "that loop, or 60 s", per="address")

    # -- repair
    recount = Key("rp", "hash", "lane(8) state(1) cause → jobs that a repair has counted", "the end of the count")
    repairing = Key("rw", "string", "the repair that counts now", "the end of the count, or 10 minutes")


KEYS: Final = {name: key for name, key in vars(K).items() if isinstance(key, Key)}
