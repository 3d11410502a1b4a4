"""Names every key of a namespace: scripts say `K.jobs`, Python says `K.jobs`, and the server stores a letter or two.

A name is resolved when a script is built, so it costs nothing when the script runs. `docs/reference/redis-keys.md` is
written from this table.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Type = Literal["hash", "list", "set", "sorted set", "stream", "string"]


class Key(msgspec.Struct, frozen=True):
    """One key, or with a `per` a family of keys: its type, what it holds, and what removes an entry of it."""

    stored: str  # the name on the server, behind the prefix of the namespace; that of a family ends before its `per`
    type: Type
    holds: str  # names in capitals are layouts of fields.py
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

    # -- The store
    meta = Key(
        "m",
        "hash",
        "layout, min_client; store (its own name); token, turn, seq and log (the last of each); swept, calm, shift (of "
        "the sweeps); recount, counted (of a repair); hooks (codes of the states that there are hooks for)",
        "never",
    )
    answers = Key(
        "once:", "string", "answer of a call that must not happen twice", "after 60 s", per="name of the call"
    )
    queues = Key("qs", "set", "queue", "prune: the queue has no class and no gate")
    counters = Key("n", "hash", "queue, task, code (\\0 between) → jobs in that state, or a total", "its count is 0")
    causes = Key("ca", "hash", "cause, queue, task (\\0 between) → CAUSE", "its last dead job is gone")
    controls = Key("ct:", "hash", "name → CONTROL", "never", per="kind")
    hooks = Key("hk", "hash", "name → HOOK", "put_control")
    logs = Key("lg:", "stream", "line: t instant, v msgpack", "prune", per="log")

    # -- Jobs
    jobs = Key("J", "hash", "id → RECORD", "prune, discard")
    large_args = Key("B", "hash", "id → arguments, where they are too large for the record", "with the job")
    results = Key("res", "hash", "id → result", "with the job")
    running = Key("run", "hash", "id → HOLD", "settle, sweep")
    notes = Key("no:", "hash", "kind, name (\\0 between) → body of a note", "with the job", per="id")
    attempts = Key("at:", "list", "msgpack of one attempt", "with the job", per="id")
    watchers = Key(
        "wa:", "set", "mailbox that waits for the end of the job", "at the end of the job, or after a day", per="id"
    )

    # -- Where jobs wait
    ready = Key("L:", "list", "ITEM of a ready job, in order", "claim", per="lane")
    ready_aside = Key("R:", "sorted set", "ITEM of a ready job that came out of order", "claim", per="lane")
    oldest_ready = Key(
        "hd:",
        "sorted set",
        "lane, by a lower bound of the time its first job is ready since",
        "the lane is idle",
        per="queue",
    )
    scheduled = Key("Z:", "sorted set", "ITEM of a scheduled job", "claim: the job is due", per="priority")
    blocked = Key("bl", "sorted set", "id of a blocked job, by arrival number", "its last open parent has ended")
    expiring = Key("E", "sorted set", "EXPIRY of a job that must start in time", "settle, sweep")
    timers = Key(
        "T",
        "sorted set",
        "z and a priority, or g and a gate, by the instant at which to look at it",
        "claim: nothing is scheduled or waits there",
    )

    # -- Indexes of jobs
    ledger = Key(
        "X:", "string", "64 ids in order of arrival; an erased one is zeros", "its last job is gone", per="chunk"
    )
    ledger_counts = Key("XN", "hash", "chunk → jobs in it", "with the chunk")
    ledger_chunks = Key("XL", "sorted set", "chunk, by its number", "with the chunk")
    finished = Key("F:", "sorted set", "ENDED", "prune, discard, retry", per="state code and queue")
    kept = Key("fc", "hash", "queue → succeeded jobs that are stored", "its count is 0")
    flows = Key("fw", "sorted set", "flow", "its last job is gone")
    flow_ranges = Key("fl:", "sorted set", "RANGE", "its last job is gone", per="flow")
    unique_keys = Key("U", "hash", "task, key (\\0 between) → HOLDER", "with the job, once the window is over")
    unique_windows = Key(
        "UO", "sorted set", "task, key of an erased job, by the end of its window", "prune: it is over"
    )
    former_holders = Key(
        "uh:", "sorted set", "id of a job that held the key before, by arrival", "with the job", per="key"
    )
    erased = Key(
        "G:", "string", "ERASED, one after the other", "prune: after 10 minutes", per="first 5 bytes of the ids"
    )
    erased_until = Key("GL", "sorted set", "the 5 bytes, by the instant until which they are kept", "with the ids")
    erased_counts = Key("GN", "hash", "the 5 bytes → ids; # → all ids", "with the ids")

    # -- Parents and children
    parents = Key(
        "d:",
        "hash",
        "parent → o and its mode while it is open, then r result, n nothing or f reason; # open parents; @ all, as "
        "named; ? one that was over at the last look",
        "with the job",
        per="id",
    )
    children = Key("c:", "sorted set", "child whose dependency on this job is open", "the job has ended", per="id")
    graph_todo = Key("fan", "set", "msgpack of an unfinished walk through very many children", "claim, sweep")
    graph_walks = Key("rv", "hash", "parent → such walks that must end before it hands its result on", "its count is 0")

    # -- Lanes
    lanes = Key("ln", "hash", "lane → LANE", "prune: the lane has no job")
    lane_states = Key("ls", "hash", "lane → a (active), or w and the gate where it waits", "the lane is idle")
    lane_jobs = Key("lj", "hash", "lane → jobs that are stored, finished ones too", "with the lane")
    empty_lanes = Key("lz", "sorted set", "lane without a job", "prune, enqueue")
    classes = Key("cl", "hash", "class → CLASS", "with its last lane")
    class_lanes = Key("ck", "hash", "class → its lanes", "with its last lane")
    policies = Key("po", "hash", "policy → JSON", "never")
    policy_limits = Key("pm", "hash", "policy → max_lost and hard timeout (- is none)", "never")
    waiting_by_tenant = Key("wt", "hash", "queue, tenant (\\0 between) → jobs that wait", "its count is 0")

    # -- Turns
    active_classes = Key("act", "sorted set", "ACTIVE", "the class has no active lane")
    seats = Key(
        "S:", "sorted set", "member, by its turn", "the member has no active lane there", per="class and priority"
    )
    seat_lanes = Key("sl", "hash", "class, member → its active lane, where it can have one only", "the lane is idle")
    member_lanes = Key(
        "A:", "sorted set", "active lane, by the instant of its last claim", "the lane is idle", per="class and member"
    )
    turns = Key("tn", "hash", "member or ring → TURN", "it has no seat")
    weights = Key("wgt", "hash", "queue:Q or tenant:T → jobs of one turn, where it is not 1", "put_control")
    page_marks = Key("lk", "hash", "signature, priority → active class where the last look ended", "with the signature")

    # -- Gates
    gates = Key("g", "hash", "gate → msgpack map", "prune: the gate rules no lane and remembers nothing")
    gate_classes = Key("gk:", "set", "class that the gate rules", "with the class", per="gate")
    gate_lanes = Key("gn", "hash", "gate → lanes that it rules", "its count is 0")
    waiting_lanes = Key(
        "W:", "sorted set", "lane that waits, by priority and turn", "the gate opens", per="class and gate"
    )
    waiting_classes = Key("WC:", "set", "class with a lane that waits", "its last lane is woken", per="gate")
    breakers = Key(
        "bk",
        "sorted set",
        "breaker, or gate that is open as one, behind its rank: 0 open, 1 counting, 2 closed",
        "with the gate, or when it is closed and no breaker",
    )
    draining = Key("dr", "set", "gate that drains", "the drain ends")
    bounded = Key("dp", "set", "gate of a queue with a depth", "the rule ends")

    # -- Sessions and leases
    sessions = Key("S!", "sorted set", "session, by its deadline", "leave, sweep")
    session = Key(
        "s:",
        "hash",
        "sig, serves, info, started, opened, beat, deadline, mailbox, idle, asked, slots, takes, takes_urgent, "
        "slept (the newest token then), handed (the number of the last job)",
        "leave, sweep",
        per="session",
    )
    session_leases = Key("st:", "set", "token of a lease", "with the lease", per="session")
    receipts = Key(
        "rc:",
        "hash",
        "claimer, or settle → seq and answer of its last call",
        "with the session, or after an hour",
        per="session",
    )
    leases = Key("le", "hash", "token → LEASE", "its last job has ended")
    lease_jobs = Key("b:", "string", "ids of the jobs that were claimed", "with the lease", per="token")
    hard_deadlines = Key("H", "sorted set", "token, by the instant at which its jobs are taken back", "with the lease")
    signatures = Key("sd", "hash", "signature → SERVES", "prune: no session has it")
    signature_classes = Key("sv:", "set", "class that such a worker can run", "with either of them", per="signature")
    class_signatures = Key("cs:", "set", "signature of workers that can run it", "with either of them", per="class")
    sleepers = Key(
        "idle:", "sorted set", "session that sleeps, by 0 (it has a free slot) or 1", "wake-up, claim", per="signature"
    )
    sleeps_until = Key("nx", "hash", "session → instant until which it sleeps", "with the session, or its next sleep")
    mailbox = Key(
        "mb:",
        "list",
        "message: w, u, c or f, and a name; or h and SENT",
        "its event loop, or after 60 s",
        per="address",
    )

    # -- Repair
    recount = Key("rp", "hash", "COUNTED → jobs", "the count ends")
    repairing = Key("rw", "string", "the repair that counts now", "the count ends, or after 10 minutes")


KEYS: Final = {name: key for name, key in vars(K).items() if isinstance(key, Key)}
