"""The public records: what statuses, operators, `--json` and hooks answer."""

from limpet.core.records.agent_type import TypeChange, TypeRecord
from limpet.core.records.alert import AlertRecord, AlertRuleRecord, AlertTest, SilenceRecord
from limpet.core.records.bulk import BulkReport
from limpet.core.records.cause import CauseRecord
from limpet.core.records.claim import ClaimRecord, FailureRecord
from limpet.core.records.decision import CauseDecisions, DecisionLog, DecisionRecord
from limpet.core.records.explanation import Explanation, Reason
from limpet.core.records.flow import FlowDetail, FlowPage, FlowRecord, NodeRecord
from limpet.core.records.folder import FolderExport, FolderImport, FolderProblem
from limpet.core.records.hook import HookRecord
from limpet.core.records.job import (
    AttemptRecord,
    EnqueuedRecord,
    JobDetail,
    JobPage,
    JobRecord,
    NoteRecord,
    Progress,
    StepRecord,
)
from limpet.core.records.lease import HeldLimit, LeaseAnswer
from limpet.core.records.limit import (
    BreakerPage,
    BreakerRecord,
    BudgetRecord,
    ChangeRecord,
    LimitRecord,
    PaceRecord,
)
from limpet.core.records.live import EventGap, JobCounts, JobEvent
from limpet.core.records.log import (
    AuditRecord,
    DifferenceRecord,
    EventRecord,
    FindingRecord,
    JobHistory,
    RepairReport,
)
from limpet.core.records.operation import OperationRecord, ProblemRecord, SampleRecord
from limpet.core.records.prime import HoldRecord, PrimeRecord
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
from limpet.core.records.rate import RateRecord
from limpet.core.records.record import Record
from limpet.core.records.redaction import RuleRecord
from limpet.core.records.scale import ScaleRecord
from limpet.core.records.schedule import (
    BackfillReport,
    NextRun,
    RemovedSchedule,
    ScheduleDetail,
    ScheduleRecord,
    TickRecord,
)
from limpet.core.records.series import DepthRecord, LineRecord, SeriesRecord
from limpet.core.records.task import MinuteRecord, TaskDetail, TaskRecord
from limpet.core.records.token import NewToken, TokenRecord
from limpet.core.records.wait import ApprovalPage, ApprovalRecord, SignalRecord
from limpet.core.records.worker import WorkerRecord

__all__ = [
    "AlertRecord",
    "AlertRuleRecord",
    "AlertTest",
    "ApprovalPage",
    "ApprovalRecord",
    "AttemptRecord",
    "AuditRecord",
    "BackfillReport",
    "BreakerPage",
    "BreakerRecord",
    "BudgetRecord",
    "BulkReport",
    "CauseDecisions",
    "CauseRecord",
    "ChangeRecord",
    "ClaimRecord",
    "DecisionLog",
    "DecisionRecord",
    "DepthRecord",
    "DifferenceRecord",
    "EnqueuedRecord",
    "EventGap",
    "EventRecord",
    "EverRecord",
    "Explanation",
    "FailureRecord",
    "FindingRecord",
    "FlowDetail",
    "FlowPage",
    "FlowRecord",
    "FolderExport",
    "FolderImport",
    "FolderProblem",
    "HeldLimit",
    "HoldRecord",
    "HookRecord",
    "JobCounts",
    "JobDetail",
    "JobEvent",
    "JobHistory",
    "JobPage",
    "JobRecord",
    "LeaseAnswer",
    "LimitRecord",
    "LineRecord",
    "MinuteRecord",
    "NewToken",
    "NextRun",
    "NodeRecord",
    "NoteRecord",
    "OperationRecord",
    "PaceRecord",
    "PauseRecord",
    "PrimeRecord",
    "ProblemRecord",
    "Progress",
    "QueueRecord",
    "RateRecord",
    "Reason",
    "Record",
    "RemovedSchedule",
    "RepairReport",
    "RetentionChange",
    "RetentionRecord",
    "RuleRecord",
    "SampleRecord",
    "ScaleRecord",
    "ScheduleDetail",
    "ScheduleRecord",
    "SeriesRecord",
    "SignalRecord",
    "SilenceRecord",
    "StatsRecord",
    "StepRecord",
    "TaskDetail",
    "TaskRecord",
    "TickRecord",
    "TokenRecord",
    "TypeChange",
    "TypeRecord",
    "WeightChange",
    "WeightRecord",
    "WorkerRecord",
]
