"""The behaviours that every engine keeps, as sentences; a new engine runs them by importing them.

Give pytest a fixture named `engine` that answers a `limpet_contract.harness.Harness`, and put this in a test file:

    from limpet_contract.behaviours import *

The star brings the fixture `bench` and every class of behaviours that any engine has; those of engines that
other processes can open are in `limpet_contract.behaviours.sharing`, those of engines that join callers' own
transactions in `limpet_contract.behaviours.transactions`. `limpet_contract.walk` and `limpet_contract.crash` hold the
random walk and the crash points for the same harness.
"""

from __future__ import annotations

from limpet_contract.behaviours.accounts import TestAccounts
from limpet_contract.behaviours.breakers import TestBreaker, TestBreakerByHand, TestProbe, TestRateBreaker
from limpet_contract.behaviours.broadcasts import TestBroadcasts, TestLiveEvents
from limpet_contract.behaviours.budgets import TestBudget, TestCosts, TestSpentForGood, TestSpentOfARate
from limpet_contract.behaviours.cancel import TestCancel
from limpet_contract.behaviours.claim import TestClaim, TestRepeatedClaim, TestSlots
from limpet_contract.behaviours.controls import TestControls, TestDrain, TestHold, TestPause
from limpet_contract.behaviours.counters import TestCounters
from limpet_contract.behaviours.dead import TestDeadLetters, TestDiscard, TestRetryByAPerson
from limpet_contract.behaviours.dependencies import TestDependencies, TestFailedParents
from limpet_contract.behaviours.depth import TestDepth
from limpet_contract.behaviours.enqueue import TestEnqueue
from limpet_contract.behaviours.fairness import TestFairness
from limpet_contract.behaviours.fencing import TestFencing
from limpet_contract.behaviours.fixture import bench
from limpet_contract.behaviours.flows import TestFindingTogether, TestFlows
from limpet_contract.behaviours.forgetting import TestForgetting
from limpet_contract.behaviours.hooks import TestHooks, TestHooksOfOthersEnds
from limpet_contract.behaviours.housekeeping import TestLife, TestLogs, TestPrune
from limpet_contract.behaviours.identity import TestIdentity
from limpet_contract.behaviours.joins import TestWideJoins
from limpet_contract.behaviours.keyed_breakers import TestBreakerByKey, TestBreakersByKeyByHand, TestProbeByKey
from limpet_contract.behaviours.leases import TestBeats, TestLeaving, TestNotes, TestTokens
from limpet_contract.behaviours.limits import TestConcurrency
from limpet_contract.behaviours.losses import TestLosses
from limpet_contract.behaviours.names import TestNamesOfATask
from limpet_contract.behaviours.news import TestNews
from limpet_contract.behaviours.openings import TestOpenings
from limpet_contract.behaviours.order import TestOrder
from limpet_contract.behaviours.pace import TestPushBack
from limpet_contract.behaviours.queries import TestFind, TestLooking, TestStanding
from limpet_contract.behaviours.rates import TestRate
from limpet_contract.behaviours.reasons import TestReasons
from limpet_contract.behaviours.refusals import TestRefused
from limpet_contract.behaviours.relay import TestRefusedRelay, TestRelay, TestRelayedTwice
from limpet_contract.behaviours.repair import TestRepair
from limpet_contract.behaviours.revival import TestRevival
from limpet_contract.behaviours.schedule import TestExpiry, TestSchedule
from limpet_contract.behaviours.settle import TestSettle
from limpet_contract.behaviours.starvation import TestStarvation
from limpet_contract.behaviours.stopping import TestStopping
from limpet_contract.behaviours.suspension import TestSignal, TestSleep, TestWaiting
from limpet_contract.behaviours.unique import TestReplace, TestUnique
from limpet_contract.behaviours.wakeups import TestWakeUps, TestWatch
from limpet_contract.behaviours.waking import TestWakingWaiters

__all__ = [
    "TestAccounts",
    "TestBeats",
    "TestBreaker",
    "TestBreakerByHand",
    "TestBreakerByKey",
    "TestBreakersByKeyByHand",
    "TestBroadcasts",
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
    "TestHooks",
    "TestHooksOfOthersEnds",
    "TestIdentity",
    "TestLeaving",
    "TestLife",
    "TestLiveEvents",
    "TestLogs",
    "TestLooking",
    "TestLosses",
    "TestNamesOfATask",
    "TestNews",
    "TestNotes",
    "TestOpenings",
    "TestOrder",
    "TestPause",
    "TestProbe",
    "TestProbeByKey",
    "TestPrune",
    "TestPushBack",
    "TestRate",
    "TestRateBreaker",
    "TestReasons",
    "TestRefused",
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
