"""Makes an example of every answer, from the type of its record: a job that has died, and what people do about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import inspect

from limpet.core.records.record import plain

BEGAN: Final = datetime(2026, 11, 19, 8, tzinfo=UTC)
JOB: Final = "01a1f5d2-4b70-7156-b6bc-0ff5e76ce3aa"
FAILED: Final = "no answer from smtp.example.com"
DEAD: Final = f"it is in the dead-letter queue since 2026-11-19T08:00:31.000Z (after attempt 3): TimeoutError: {FAILED}"

HOURLY: Final = {"type": "every", "every_ms": 3_600_000}

# field → when it was, in seconds after BEGAN
LATER_S: Final[Mapping[str, int]] = {
    "due_at": 0,
    "first_at": 0,
    "started_at": 1,
    "finished_at": 31,
    "last_at": 31,
    "last_used_at": 40,
    "beat_at": 28,
    "deadline_at": 43,
    "until": 60,
    "open_until": 60,
    "ends_at": 57_600,
    "expires_at": 7_776_000,
    "next_at": 3_600,
}

# field → its value in every record that has it
SAID: Final[Mapping[str, Any]] = {
    "action": "retry",
    "actor": "token:board",
    "answers": {"retried": 1},
    "args": {"to": "ada@example.com"},
    "attempt": 3,
    "attempts": 3,
    "breaker": "smtp",
    "by": "ada",
    "catch_up": "last",
    "cause": "ac2bae2b3938fdd8",
    "changed_by": "ada",
    "code_version": "4.2",
    "concurrency": 10,
    "count": 1,
    "created_by": "ada",
    "dead": 1,
    "error": "TimeoutError",
    "event": "paid",
    "failed_share": 0.25,
    "fix": "start one: limpet worker MODULE:APP",
    "id": JOB,
    "in_words": "in 12 min",
    "job": JOB,
    "level": "warning",
    "matched": 1,
    "message": FAILED,
    "name": "digest",
    "node": "send",
    "outcome": "dead",
    "overlap": "skip",
    "per": "day",
    "per_hour": 1.0,
    "prefix": "limpet_4jK0pQ2x",
    "priority": 5,
    "query": "state:dead error:Timeout",
    "question": "refund order 7?",
    "queue": "mail",
    "queues": ("mail",),
    "reason": "the provider is back",
    "role": "viewer",
    "sample": JOB,
    "schedule": "digest",
    "seq": 17,
    "session": "worker1:4711:be0d068f",
    "set_by": "operator",
    "source": "code",
    "state": "dead",
    "status": "open",
    "task": "email.send",
    "timeout_s": 30.0,
    "token": 3641,
    "total": 10,
    "unit": "usd",
    "verb": "retry",
    "version": 1,
    "weight": 3,
    "when": "every hour",
}

# record → fields that mean something else there, or are null for this job
OF: Final[Mapping[str, Mapping[str, Any]]] = {
    "ApprovalRecord": {"name": "manager", "task": "refunds.refund", "args": {"order": 7}},
    "AttemptRecord": {"number": 3, "kind": "timeout"},
    "AuditRecord": {"kind": "job.retry", "data": {"query": "state:dead error:Timeout"}},
    "BreakerRecord": {"state": "open", "recent_failures": 5, "opened": 1},
    "BudgetRecord": {"cap": 50.0, "spent": 12.5, "left": 37.5},
    "BulkReport": {"done": 1},
    "CauseRecord": {"status_by": None, "until": None, "assignee": "payments team"},
    "ChangeRecord": {"key": "queue:mail", "changed": ("queue:mail",), "state": "paused"},
    "ClaimRecord": {"attempt": 2},
    "CauseDecisions": {"status": "resolved"},
    "DecisionRecord": {"action": "retry", "jobs": 1, "job": None, "became": {"succeeded": 1}, "operation": None},
    "EventGap": {"id": "4f1d9a20-19", "text": "events were lost on their way"},
    "EventRecord": {
        "kind": "breaker.opened",
        "text": "breaker smtp opened until 2026-11-19T08:01:00.000Z",
        "key": "breaker:smtp",
        "unit": None,
    },
    "Explanation": {"text": f"Job {JOB} (email.send, queue mail) is dead: {DEAD}; retry or discard it."},
    "FailureRecord": {"attempt": 1, "outcome": "retried"},
    "FindingRecord": {"code": "no_workers", "text": "no worker is alive, and jobs that wait: 1"},
    "FlowDetail": {"name": "order 7", "done": 1, "total": 1, "counts": {"dead": 1}},
    "FlowRecord": {"name": "order 7", "done": 1, "total": 1, "counts": {"dead": 1}},
    "HookRecord": {"name": "alert", "states": ("dead",), "tasks": (), "workers": 1},
    "JobCounts": {"id": "4f1d9a20-18", "count": 250},
    "JobDetail": {"reason": FAILED, "cost": 1, "session": None, "schedule": None, "expires_at": None, "token": None},
    "JobEvent": {"id": "4f1d9a20-17", "kind": "dead"},
    "JobRecord": {"reason": FAILED},
    "LeaseAnswer": {"state": "succeeded", "until": None, "text": "the job is succeeded"},
    "LimitRecord": {"key": "smtp", "free": 6, "used": 4, "unit": "", "waiting": 12, "paused": None, "pace": None},
    "MinuteRecord": {"finished": 12.0, "failed": 3.0, "ended": {"succeeded": 9, "dead": 3}},
    "NewToken": {"name": "board", "token": "limpet_4jK0pQ2x_" + "x" * 43, "state": "active"},
    "NodeRecord": {"reason": FAILED, "run": 1},
    "NoteRecord": {"kind": "checkpoint", "name": "", "body": {"page": 3}},
    "OperationRecord": {
        "state": "running",
        "by": None,
        "counted": True,
        "matched": 412,
        "done": 20,
        "changed": 20,
        "answers": {"retried": 20},
        "per_second": 10.0,
        "problems": (),
        "finished_at": None,
    },
    "PauseRecord": {"reason": "the provider is down"},
    "Progress": {"done": 3.0, "message": "page 3"},
    "Reason": {"code": "dead", "text": f"{DEAD}; retry or discard it", "until": None},
    "RuleRecord": {"rule": "args.card.number", "task": None, "added_by": "ada"},
    "RetentionChange": {"keep": {"dead": 2_592_000.0}, "set_by": {"dead": "operator"}},
    "RetentionRecord": {"keep": {"dead": 2_592_000.0}, "set_by": {"dead": "operator"}},
    "SampleRecord": {"size": 20, "jobs": (JOB,), "unfinished": 19},
    "ScheduleDetail": {"state": "on", "rule": HOURLY, "changed_by": None, "fix": None},
    "ScheduleRecord": {"state": "on", "rule": HOURLY, "changed_by": None, "fix": None},
    "SignalRecord": {"answer": "woken", "text": "the job continues"},
    "StepRecord": {
        "name": "charge",
        "kind": "step",
        "value": {"paid": True},
        "error": None,
        "event": None,
        "until": None,
        "question": None,
    },
    "TaskDetail": {"declared": True, "states": {"dead": 1}, "workers": 1},
    "TaskRecord": {"declared": True, "states": {"dead": 1}, "workers": 1},
    "TickRecord": {"fired": True, "count": 1},
    "TokenRecord": {"name": "board", "state": "active"},
    "WeightChange": {"name": "queue:mail"},
    "WeightRecord": {"name": "queue:mail"},
    "WorkerRecord": {"running": 4, "info": {"host": "worker1"}},
}


def example_of(kind: Any) -> Any:
    """An example of a record, as JSON has it."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return plain(_record(found))


def _record(info: inspect.StructType) -> Any:
    own = OF.get(info.cls.__name__, {})
    return info.cls(**{each.name: own[each.name] if each.name in own else _value(each) for each in info.fields})


def _value(field: inspect.Field) -> Any:
    """The value of one field: what is said of it, or the record that it is; otherwise null where that may be."""
    kind = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
    if not isinstance(kind, inspect.UnionType):
        return _of_type(field.name, kind)
    nullable = any(isinstance(each, inspect.NoneType) for each in kind.types)
    needed = not nullable or field.name in SAID or field.name in LATER_S
    found = (_of_type(field.name, each) for each in kind.types if needed or isinstance(each, inspect.StructType))
    return next((each for each in found if each is not None), None)


def _of_type(name: str, kind: inspect.Type) -> Any:
    said = SAID.get(name)
    match kind:
        case inspect.StructType():
            return _record(kind)
        case inspect.DateTimeType():
            return BEGAN + timedelta(seconds=LATER_S.get(name, 0))
        case inspect.LiteralType(values=values):
            return said if said in values else values[0]
        case inspect.EnumType(cls=cls):
            return cls(said)
        case inspect.VarTupleType(item_type=inspect.StructType() | inspect.DateTimeType() as item):
            return (_of_type(name, item),)
        case inspect.VarTupleType():
            return said if isinstance(said, tuple) else ()
        case inspect.ListType():
            return said if isinstance(said, list) else []
        case inspect.DictType():
            return said if isinstance(said, dict) else {}
        case inspect.AnyType():
            return said if isinstance(said, dict) else None
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return said if isinstance(said, int | float) else 0
        case inspect.StrType():
            return said if isinstance(said, str) else name
    return None
