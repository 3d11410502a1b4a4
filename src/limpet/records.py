"""The public records: what statuses, operators, `--json` and hooks answer."""

from limpet.core.records.explanation import Explanation, Reason
from limpet.core.records.hook import HookRecord
from limpet.core.records.job import AttemptRecord, JobDetail, JobRecord, NoteRecord, Progress, StepRecord
from limpet.core.records.record import Record
from limpet.core.records.task import MinuteRecord, TaskDetail, TaskRecord

__all__ = [
    "AttemptRecord",
    "Explanation",
    "HookRecord",
    "JobDetail",
    "JobRecord",
    "MinuteRecord",
    "NoteRecord",
    "Progress",
    "Reason",
    "Record",
    "StepRecord",
    "TaskDetail",
    "TaskRecord",
]
