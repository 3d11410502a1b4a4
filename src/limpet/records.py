"""The public records: what statuses, operators, `--json` and hooks answer."""

from limpet.core.records.bulk import BulkReport
from limpet.core.records.explanation import Explanation, Reason
from limpet.core.records.hook import HookRecord
from limpet.core.records.job import AttemptRecord, JobDetail, JobPage, JobRecord, NoteRecord, Progress, StepRecord
from limpet.core.records.log import (
    AuditRecord,
    CauseRecord,
    DifferenceRecord,
    EventRecord,
    FindingRecord,
    RepairReport,
)
from limpet.core.records.queue import (
    EverRecord,
    PauseRecord,
    QueueRecord,
    RetentionChange,
    RetentionRecord,
    StatsRecord,
    WeightChange,
    WeightRecord,
)
from limpet.core.records.record import Record
from limpet.core.records.task import MinuteRecord, TaskDetail, TaskRecord
from limpet.core.records.worker import WorkerRecord

__all__ = [
    "AttemptRecord",
    "AuditRecord",
    "BulkReport",
    "CauseRecord",
    "DifferenceRecord",
    "EventRecord",
    "EverRecord",
    "Explanation",
    "FindingRecord",
    "HookRecord",
    "JobDetail",
    "JobPage",
    "JobRecord",
    "MinuteRecord",
    "NoteRecord",
    "PauseRecord",
    "Progress",
    "QueueRecord",
    "Reason",
    "Record",
    "RepairReport",
    "RetentionChange",
    "RetentionRecord",
    "StatsRecord",
    "StepRecord",
    "TaskDetail",
    "TaskRecord",
    "WeightChange",
    "WeightRecord",
    "WorkerRecord",
]
