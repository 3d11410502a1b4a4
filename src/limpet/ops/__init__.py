"""Asks about work and corrects it: one operator API under every face."""

from limpet.core.records.bulk import BulkReport
from limpet.core.records.cause import CauseKey
from limpet.core.records.explanation import Explanation, Reason
from limpet.core.records.lease import LeaseAnswer
from limpet.ops.agents import Agents
from limpet.ops.feed import EventStream
from limpet.ops.flows import Flows
from limpet.ops.limits import LimitChange
from limpet.ops.operation_runner import OperationRunner, run_operations
from limpet.ops.operator import Operator
from limpet.ops.query import InvalidQuery, parse_query
from limpet.ops.schedules import Schedules
from limpet.ops.types import Types
from limpet.ops.waits import Waits

__all__ = [
    "Agents",
    "BulkReport",
    "CauseKey",
    "EventStream",
    "Explanation",
    "Flows",
    "InvalidQuery",
    "LeaseAnswer",
    "LimitChange",
    "OperationRunner",
    "Operator",
    "Reason",
    "Schedules",
    "Types",
    "Waits",
    "parse_query",
    "run_operations",
]
