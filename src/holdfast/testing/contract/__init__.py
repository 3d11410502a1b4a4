"""The behaviours that every engine keeps, as sentences; a new engine runs them by importing them.

Give pytest a fixture named `engine` that answers a `holdfast.testing.harness.Harness`, and put this in a test file:

    from holdfast.testing.contract import *

The star brings the fixture `bench` and every class of behaviours that any engine has; those of engines that
other processes can open are in `holdfast.testing.contract.sharing`, those of engines that join callers' own
transactions in `holdfast.testing.contract.transactions`. `holdfast.testing.walk` and `holdfast.testing.crash` hold the
random walk and the crash points for the same harness.
"""

from __future__ import annotations

from holdfast.testing.contract.accounts import TestAccounts
from holdfast.testing.contract.breakers import TestBreaker, TestBreakerByHand, TestProbe, TestRateBreaker
from holdfast.testing.contract.budgets import TestBudget, TestCosts, TestSpentForGood, TestSpentOfARate
from holdfast.testing.contract.cancel import TestCancel
from holdfast.testing.contract.claim import TestClaim, TestRepeatedClaim, TestSlots
from holdfast.testing.contract.controls import TestControls, TestDrain, TestHold, TestPause
from holdfast.testing.contract.counters import TestCounters
from holdfast.testing.contract.dead import TestDeadLetters, TestDiscard, TestRetryByAPerson
from holdfast.testing.contract.dependencies import TestDependencies, TestFailedParents
from holdfast.testing.contract.enqueue import TestEnqueue
from holdfast.testing.contract.fairness import TestFairness
from holdfast.testing.contract.fencing import TestFencing
from holdfast.testing.contract.fixture import bench
from holdfast.testing.contract.flows import TestFindingTogether, TestFlows
from holdfast.testing.contract.forgetting import TestForgetting
from holdfast.testing.contract.housekeeping import TestLife, TestLogs, TestPrune
from holdfast.testing.contract.joins import TestWideJoins
from holdfast.testing.contract.leases import TestBeats, TestLeaving, TestNotes, TestTokens
from holdfast.testing.contract.limits import TestConcurrency
from holdfast.testing.contract.losses import TestLosses
from holdfast.testing.contract.news import TestNews
from holdfast.testing.contract.openings import TestOpenings
from holdfast.testing.contract.order import TestOrder
from holdfast.testing.contract.pace import TestPushBack
from holdfast.testing.contract.queries import TestFind, TestLooking, TestStanding
from holdfast.testing.contract.rates import TestRate
from holdfast.testing.contract.reasons import TestReasons
from holdfast.testing.contract.relay import TestRefusedRelay, TestRelay, TestRelayedTwice
from holdfast.testing.contract.revival import TestRevival
from holdfast.testing.contract.schedule import TestExpiry, TestSchedule
from holdfast.testing.contract.settle import TestSettle
from holdfast.testing.contract.starvation import TestStarvation
from holdfast.testing.contract.suspension import TestSignal, TestSleep, TestWaiting
from holdfast.testing.contract.unique import TestReplace, TestUnique
from holdfast.testing.contract.wakeups import TestWakeUps, TestWatch
from holdfast.testing.contract.waking import TestWakingWaiters

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
    "TestTokens",
    "TestUnique",
    "TestWaiting",
    "TestWakeUps",
    "TestWakingWaiters",
    "TestWatch",
    "TestWideJoins",
    "bench",
]
