"""Remembers new jobs: all of a call or none, duplicates answered by the job that is there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from limpet.core.errors import QueueFull, UnknownParent
from limpet.core.flows.flow import order
from limpet.core.gate import GateChange, GateRule, apply_change
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job, Lane, Policy
from limpet.core.jobs.state import STATES, State
from limpet.core.limits.depth import crowds, queue_draining, queue_full
from limpet.stores.packed import PLAIN, Extra, check_size, encode_extra, extra_or_none, is_plain
from limpet.stores.sqlite import graph, lanes, unique
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.statements import with_marks
from limpet.stores.sqlite.tx import BLOCKED, CANCELLED, ENQUEUED, READY, SCHEDULED, SUCCEEDED, Tx

ROW_SIZES = (64, 8, 1)  # few shapes of "VALUES …": each is one prepared statement
SMALL = 512  # arguments up to this size travel with the row that every change of state rewrites
MODES = {"cancel": 0, "run": 1, "wait": 2}

_encode = msgspec.json.Encoder().encode


def enqueue(tx: Tx, jobs: Sequence[Job], rules: Sequence[GateRule], *, always: bool = False) -> list[Enqueued]:
    """Check everything, then write everything. With `always` no depth refuses them."""
    check_size(jobs)
    draining = _draining(tx, jobs)
    depths = {} if always else _depths(tx, jobs, rules)
    tight = bool(depths) and _full(tx, jobs, depths) is not None
    plain = not draining and not tight and not any(job.unique is not None or job.after for job in jobs)
    known = {} if plain and not tx.row("any_gone") else _stored(tx, [job.id for job in jobs])
    if plain and not known:
        answers = _insert_new(tx, jobs)
        if answers is not None:
            declare(tx, rules)
            return answers
        known = _stored(tx, [job.id for job in jobs])
    return _insert_checked(tx, jobs, rules, known, draining, depths)


def insert_absent(tx: Tx, jobs: Sequence[Job]) -> None:
    """Store plain jobs that nothing may refuse; one that is or was stored stays as it is."""
    known = _stored(tx, [job.id for job in jobs])
    _insert_new(tx, [job for job in jobs if job.id not in known])


def declare(tx: Tx, rules: Sequence[GateRule]) -> None:
    """Make the limits and breakers that jobs name known; an operator's rule stays."""
    if not rules:
        return
    tx.load_gates([rule.key for rule in rules])
    for rule in rules:
        gate = tx.gate(rule.key)
        if gate is None or (gate.declared and gate.rule != rule):
            tx.put_gate(apply_change(gate, GateChange(rule.key, rule=rule, declared=True), tx.now_ms))


def _draining(tx: Tx, jobs: Sequence[Job]) -> set[str]:
    """The queues, tasks or everything that take no new jobs, of those that these jobs would go to."""
    places = {key for lane in {job.lane for job in jobs} for key in lane.class_gates[:3]}
    tx.load_gates(places)
    return {key for key in places if (gate := tx.gate(key)) is not None and gate.draining}


def _refuse_draining(job: Job, index: int | None, draining: set[str]) -> None:
    for key in job.lane.class_gates[:3]:
        if key in draining:
            raise queue_draining(key, index)


def _depths(tx: Tx, jobs: Sequence[Job], rules: Sequence[GateRule]) -> dict[str, GateRule]:
    """The rules of the queues of these jobs that bound how many may wait, as they are after this call."""
    keys = {lane.class_gates[1] for lane in {job.lane for job in jobs}}
    said = {rule.key: rule for rule in rules}
    found = {}
    for key in keys:
        gate = tx.gate(key)
        stored = None if gate is None else gate.rule
        rule = stored if gate is not None and not gate.declared else said.get(key, stored)
        if rule is not None and (rule.depth is not None or rule.tenant_depth is not None):
            found[key] = rule
    return found


def _full(tx: Tx, new: Sequence[Job], depths: dict[str, GateRule]) -> QueueFull | None:
    """Why these new jobs do not fit, when they do not."""
    for (queue, tenant), (most, brought) in crowds((job.lane for job in new), depths).items():
        found = tx.row("queue_waiting", (queue,)) if tenant is None else tx.row("tenant_waiting", (queue, tenant))
        if found[0] + brought > most:
            return queue_full(queue, tenant, found[0], most, brought)
    return None


def _stored(tx: Tx, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Ids that are or were stored → state code."""
    return dict(tx.rows_in("gone_states", ids)) | dict(tx.rows_in("job_states", ids))


def due_of(job: Job, now_ms: int) -> int:
    """When the job may run, by the engine's clock."""
    if job.due_at_ms is not None:
        return max(job.due_at_ms, 0)
    return now_ms + job.delay_ms


def _shared(job: Job, state: int, due_ms: int, now_ms: int) -> tuple[object, ...]:
    """The part of a job's row that most jobs of a bulk have in common."""
    expires = None if job.expires_ms is None else now_ms + job.expires_ms
    lane = job.lane
    key = None if job.unique is None else job.unique.key
    return (state, lane.id, lane.priority, due_ms, now_ms, expires, job.policy.id, job.flow, key)


def _own(job: Job) -> tuple[object, ...]:
    return (job.id, job.args if len(job.args) <= SMALL else None, extra_of(job))


def extra_of(job: Job) -> bytes | None:
    """The packed rest of a job; None for the many that have none."""
    if is_plain(job):
        return None
    key, states = (None, 0) if job.unique is None else (job.unique.key, unique.mask_of(job.unique))
    return encode_extra(
        Extra(job.cost, job.tags, job.meta, job.flow, key, job.after, job.if_parent_fails, states, job.costs)
    )


def put_args(tx: Tx, id: bytes, args: bytes) -> None:
    """New arguments for a stored job."""
    tx.run("job_args", (args if len(args) <= SMALL else None, id))
    if len(args) > SMALL:
        tx.run("body_insert", (id, args))


def _insert_new(tx: Tx, jobs: Sequence[Job]) -> list[Enqueued] | None:
    """Insert jobs that are expected to be new, without looking first; None when one of them was there."""
    now_ms = tx.now_ms
    rows: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
    answers = []
    states: dict[Lane, list[int]] = {}
    policies: set[Policy] = set()
    lane: Lane | None = None
    policy: Policy | None = None
    tally: list[int] = []
    for job in jobs:
        if job.lane is not lane:
            lane = job.lane
            tally = states.setdefault(lane, [0, 0])
        if job.policy is not policy:
            policy = job.policy
            policies.add(policy)
        due_ms = now_ms if not job.delay_ms and job.due_at_ms is None else due_of(job, now_ms)
        if due_ms > now_ms:
            state, name = SCHEDULED, State.scheduled
            tally[1] += 1
            tx.note_timer(lane.id, due_ms)
        else:
            state, name = READY, State.ready
            tally[0] += 1
        rows.setdefault(_shared(job, state, due_ms, now_ms), []).append(_own(job))
        answers.append(Enqueued(job.id, False, name))
    alone = len(jobs) == 1  # one statement undoes itself
    if not alone:
        tx.conn.execute("SAVEPOINT enqueue")
    try:
        for shared, own in rows.items():
            _insert_rows(tx, shared, own)
    except library.IntegrityError:
        if not alone:
            tx.conn.execute("ROLLBACK TO enqueue")
            tx.conn.execute("RELEASE enqueue")
        tx.timers.clear()
        return None
    if not alone:
        tx.conn.execute("RELEASE enqueue")
    large = [(job.id, job.args) for job in jobs if len(job.args) > SMALL]
    if large:
        tx.many("body_insert", large)
    remember_policies(tx, policies)
    lanes.remember(tx, states)
    for each, (ready, scheduled) in states.items():
        _count_new(tx, each, READY, ready)
        _count_new(tx, each, SCHEDULED, scheduled)
        if ready:
            lanes.activate(tx, each, ready)
    return answers


def _insert_rows(tx: Tx, shared: Sequence[Any], rows: Sequence[Sequence[Any]]) -> None:
    """Insert jobs, whatever their number; `shared` is what their rows have in common.

    Many rows per statement: each one hands the GIL over and back, and binds `shared` once.
    """
    marks = f"({','.join('?' * len(rows[0]))})"
    start = 0
    while start < len(rows):
        size = next(s for s in ROW_SIZES if s <= len(rows) - start)
        text = with_marks(tx.sql["job_insert"], ":rows", marks, size)
        tx.conn.execute(text, [*shared, *chain.from_iterable(rows[start : start + size])])
        start += size


def _count_new(tx: Tx, lane: Lane, state: int, count: int) -> None:
    if count:
        tx.tally(ENQUEUED, count)
        tx.move(lane, None, state, count)
        tx.lane_jobs[lane.id] += count


def remember_policies(tx: Tx, policies: set[Policy]) -> None:
    """Store policies that are not there yet."""
    new = [policy for policy in policies if policy.id not in tx.known.stored]
    if new:
        tx.many("policy_insert", [(policy.id, _encode(policy)) for policy in new])
        tx.stored.update(policy.id for policy in new)


def _insert_checked(
    tx: Tx,
    jobs: Sequence[Job],
    rules: Sequence[GateRule],
    known: dict[bytes, int],
    draining: set[str],
    depths: dict[str, GateRule],
) -> list[Enqueued]:
    """The careful way: ids, unique keys and parents are looked up first; one bad item refuses all."""
    alias, replaced = _stand_ins(tx, jobs, known)
    new = {id for id, target in alias.items() if id == target and id not in known}
    for index, job in enumerate(jobs):
        if job.id in new:
            _refuse_draining(job, index if len(jobs) > 1 else None, draining)
    if depths:
        full = _full(tx, list({job.id: job for job in jobs if job.id in new}.values()), depths)
        if full is not None:
            raise full
    parents = _parents(tx, jobs, alias, new)
    in_order = _parents_first(jobs)
    declare(tx, rules)
    done = dict(known)
    for job in in_order:
        if job.id in new:
            done[job.id] = _insert_one(tx, job, [(alias.get(p, p), parents) for p in job.after], done)
            graph.note_stand_ins(tx, job.id, [(p, alias[p]) for p in job.after if alias.get(p, p) != p])
    for job in jobs:
        if job.id in replaced:  # what it replaces may be of this very call, and is stored by now
            _replace(tx, alias[job.id], job)
    answers = []
    seen: set[bytes] = set()
    for job in jobs:
        target = alias[job.id]
        existing = job.id not in new or job.id in seen
        seen.add(job.id)
        answers.append(Enqueued(target, existing, STATES[done[target] if target in done else _state_of(tx, target)]))
    return answers


def _state_of(tx: Tx, id: bytes) -> int:
    row = tx.row("job_state", (id,))
    # Pruned before its key's window was over: only a job that succeeded holds a key so long.
    return SUCCEEDED if row is None else int(row[0])


def _stand_ins(tx: Tx, jobs: Sequence[Job], known: dict[bytes, int]) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Job of this call → the job that stands for it, and those that shall replace what stands for them."""
    taken: dict[str, bytes] = {}  # unique keys of this call
    alias: dict[bytes, bytes] = {}
    replaced: set[bytes] = set()
    for job in jobs:
        if job.id in alias:
            continue
        alias[job.id] = job.id
        if job.unique is None or job.id in known:
            continue
        key = unique.unique_key(job.lane, job.unique.key)
        holder = taken.get(key) or unique.holder_of(tx, key)
        if holder is None:
            taken[key] = job.id
        else:
            alias[job.id] = holder
            if job.unique.on_duplicate != "existing":
                replaced.add(job.id)
    return alias, replaced


def _parents_first(jobs: Sequence[Job]) -> list[Job]:
    """The jobs of a call, each after those of its parents that are in the same call; a cycle is refused."""
    by_id = {job.id: job for job in jobs}
    if not any(parent in by_id for job in jobs for parent in job.after):
        return list(by_id.values())
    names = {id_text(id): job for id, job in by_id.items()}  # a refusal names its path
    return [names[name] for name in order({name: map(id_text, job.after) for name, job in names.items()})]


def _parents(tx: Tx, jobs: Sequence[Job], alias: dict[bytes, bytes], new: set[bytes]) -> dict[bytes, int]:
    """Stored parents → state code; a parent that is nowhere refuses the call."""
    wanted = {alias.get(p, p) for job in jobs for p in job.after}
    states = dict(tx.rows_in("job_states", sorted(wanted)))
    for index, job in enumerate(jobs):
        for parent in job.after if job.id in new else ():
            if alias.get(parent, parent) not in states and parent not in alias:
                raise UnknownParent(
                    f"item {index} waits for job {id_text(parent)}, which is not stored",
                    fix="enqueue the parent first, or in the same call",
                )
    return states


def _insert_one(tx: Tx, job: Job, parents: list[tuple[bytes, dict[bytes, int]]], done: dict[bytes, int]) -> int:
    due_ms = due_of(job, tx.now_ms)
    state = SCHEDULED if due_ms > tx.now_ms else READY
    deps, waits, doom, revivable = [], 0, "", False
    for parent, states in dict(parents).items():
        code = done.get(parent, states.get(parent, BLOCKED))
        dep = graph.dep_at_enqueue(tx, job, parent, code, MODES[job.if_parent_fails])
        deps.append(dep.row)
        waits += dep.waits
        if dep.cancelled and not doom:
            doom, revivable = dep.cancelled, dep.revivable
    if waits:
        state = BLOCKED
    lanes.remember(tx, [job.lane])
    remember_policies(tx, {job.policy})
    # A doomed child is written as waiting first, so that its end is one ordinary change of state.
    _insert_rows(tx, _shared(job, state, due_ms, tx.now_ms), [_own(job)])
    if len(job.args) > SMALL:
        tx.run("body_insert", (job.id, job.args))
    _count_new(tx, job.lane, state, 1)
    if deps:
        tx.many("dep_insert", deps)
        tx.many("job_flag_kids", [(parent,) for parent, _ in parents])
        graph.flag_inputs(tx, job.id)
    if job.unique is not None:
        unique.hold(tx, job)
    if doom:
        graph.doom(tx, job.id, doom, revivable=revivable)
        return CANCELLED
    if state == READY:
        lanes.activate(tx, job.lane, 1)
    elif state == SCHEDULED:
        tx.note_timer(job.lane.id, due_ms)
    return state


def _replace(tx: Tx, target: bytes, job: Job) -> None:
    """The waiting job takes new arguments, priority, time and cost; one that runs, has ended, or has steps or a
    checkpoint of its own arguments stays as it is. Where one of them is part of a flow, it costs what it did.

    `replace` counts the delay from the first enqueue, `debounce` restarts it.
    """
    row = tx.row("job_waiting", (target,))
    if row is None:
        return
    old_state, old_lane_id, enqueued_ms, packed = row
    assert job.unique is not None
    base_ms = tx.now_ms if job.unique.on_duplicate == "debounce" else enqueued_ms
    due_ms = due_of(job, base_ms)
    state = BLOCKED if old_state == BLOCKED else SCHEDULED if due_ms > tx.now_ms else READY
    old_lane = tx.lane(old_lane_id)
    lanes.remember(tx, [job.lane])
    remember_policies(tx, {job.policy})
    expires = None if job.expires_ms is None else tx.now_ms + job.expires_ms
    old = extra_or_none(packed) or PLAIN
    extra = packed if old.flow or old.after or job.flow or job.after else extra_of(job)
    tx.run("job_replace", (state, job.lane.id, job.lane.priority, due_ms, expires, job.policy.id, None, extra, target))
    if old_state == READY:
        lanes.leave_line(tx, old_lane, packed)
    put_args(tx, target, job.args)
    tx.move(old_lane, old_state, None)
    tx.move(job.lane, None, state)
    tx.lane_jobs[old_lane_id] -= 1
    tx.lane_jobs[job.lane.id] += 1
    if state == READY:
        lanes.activate(tx, job.lane, 1)
    elif state == SCHEDULED:
        tx.note_timer(job.lane.id, due_ms)
