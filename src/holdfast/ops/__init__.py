"""Asks about work and corrects it: one operator API under every face."""

from holdfast.ops.agents import Agents, LeaseAnswer
from holdfast.ops.bulk import BulkReport
from holdfast.ops.calendar import NextRun, ScheduleView, TickView
from holdfast.ops.explain import Explanation
from holdfast.ops.flows import Flows
from holdfast.ops.limits import LimitChange
from holdfast.ops.operator import JobDetail, Operator
from holdfast.ops.query import InvalidQuery, parse_query
from holdfast.ops.reason import Reason
from holdfast.ops.schedule_runs import Backfill
from holdfast.ops.schedules import Schedules
from holdfast.ops.waits import Waits

__all__ = [
    "Agents",
    "Backfill",
    "BulkReport",
    "Explanation",
    "Flows",
    "InvalidQuery",
    "JobDetail",
    "LeaseAnswer",
    "LimitChange",
    "NextRun",
    "Operator",
    "Reason",
    "ScheduleView",
    "Schedules",
    "TickView",
    "Waits",
    "parse_query",
]
