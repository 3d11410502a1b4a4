"""The behaviours that every engine keeps, as sentences; a new engine runs them by importing them.

Give pytest a fixture named `engine` that answers a `limpet.testing.harness.Harness`, and put this in a test file:

    from limpet.testing.contract import *

The star brings the fixture `bench` and every class of behaviours that any engine has; those of engines that
other processes can open are in `limpet.testing.contract.sharing`, those of engines that join callers' own
transactions in `limpet.testing.contract.transactions`. `limpet.testing.walk` and `limpet.testing.crash` hold the
random walk and the crash points for the same harness.
"""

from __future__ import annotations

from limpet.testing.contract.accounts import TestAccounts
from limpet.testing.contract.breakers import TestBreaker, TestBreakerByHand, TestProbe, TestRateBreaker
from limpet.testing.contract.budgets import TestBudget, TestCosts, TestSpentForGood, TestSpentOfARate
from limpet.testing.contract.cancel import TestCancel
from limpet.testing.contract.claim import TestClaim, TestRepeatedClaim, TestSlots
from limpet.testing.contract.controls import TestControls, TestDrain, TestHold, TestPause
from limpet.testing.contract.counters import TestCounters
from limpet.testing.contract.dead import TestDeadLetters, TestDiscard, TestRetryByAPerson
from limpet.testing.contract.dependencies import TestDependencies, TestFailedParents
from limpet.testing.contract.depth import TestDepth
from limpet.testing.contract.enqueue import TestEnqueue
from limpet.testing.contract.fairness import TestFairness
from limpet.testing.contract.fencing import TestFencing
from limpet.testing.contract.fixture import bench
from limpet.testing.contract.flows import TestFindingTogether, TestFlows
from limpet.testing.contract.forgetting import TestForgetting
from limpet.testing.contract.housekeeping import TestLife, TestLogs, TestPrune
from limpet.testing.contract.identity import TestIdentity
from limpet.testing.contract.joins import TestWideJoins
from limpet.testing.contract.leases import TestBeats, TestLeaving, TestNotes, TestTokens
from limpet.testing.contract.limits import TestConcurrency
from limpet.testing.contract.losses import TestLosses
from limpet.testing.contract.news import TestNews
from limpet.testing.contract.openings import TestOpenings
from limpet.testing.contract.order import TestOrder
from limpet.testing.contract.pace import TestPushBack
from limpet.testing.contract.queries import TestFind, TestLooking, TestStanding
from limpet.testing.contract.rates import TestRate
from limpet.testing.contract.reasons import TestReasons
from limpet.testing.contract.relay import TestRefusedRelay, TestRelay, TestRelayedTwice
from limpet.testing.contract.repair import TestRepair
from limpet.testing.contract.revival import TestRevival
from limpet.testing.contract.schedule import TestExpiry, TestSchedule
from limpet.testing.contract.settle import TestSettle
from limpet.testing.contract.starvation import TestStarvation
from limpet.testing.contract.stopping import TestStopping
from limpet.testing.contract.suspension import TestSignal, TestSleep, TestWaiting
from limpet.testing.contract.unique import TestReplace, TestUnique
from limpet.testing.contract.wakeups import TestWakeUps, TestWatch
from limpet.testing.contract.waking import TestWakingWaiters

__all__ = [
    "TestAccounts",
    "TestBeats",
    "TestBreaker",
    "TestBreakerByHand",
    "TestBudget",
    "TestCancel",
    "TestClaim",
    "TestConcurrency",
    "TestControls",
    "TestCosts",
    "TestCounters",
    "TestDeadLetters",
    "TestDependencies",
    "TestDepth",
    "TestDiscard",
    "TestDrain",
    "TestEnqueue",
    "TestExpiry",
    "TestFailedParents",
    "TestFairness",
    "TestFencing",
    "TestFind",
    "TestFindingTogether",
    "TestFlows",
    "TestForgetting",
    "TestHold",
    "TestIdentity",
    "TestLeaving",
    "TestLife",
    "TestLogs",
    "TestLooking",
    "TestLosses",
    "TestNews",
    "TestNotes",
    "TestOpenings",
    "TestOrder",
    "TestPause",
    "TestProbe",
    "TestPrune",
    "TestPushBack",
    "TestRate",
    "TestRateBreaker",
    "TestReasons",
    "TestRefusedRelay",
    "TestRelay",
    "TestRelayedTwice",
    "TestRepair",
    "TestRepeatedClaim",
    "TestReplace",
    "TestRetryByAPerson",
    "TestRevival",
    "TestSchedule",
    "TestSettle",
    "TestSignal",
    "TestSleep",
    "TestSlots",
    "TestSpentForGood",
    "TestSpentOfARate",
    "TestStanding",
    "TestStarvation",
    "TestStopping",
    "TestTokens",
    "TestUnique",
    "TestWaiting",
    "TestWakeUps",
    "TestWakingWaiters",
    "TestWatch",
    "TestWideJoins",
    "bench",
]
