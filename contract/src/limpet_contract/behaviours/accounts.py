"""Behaviours of accounts: every gate is shown beside what running jobs hold of it."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.limits.account import Account
from limpet.core.limits.period import MINUTE_MS, ends_ms
from limpet.stores.asking import examined
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

USD = GateRule("limit:usd", unit="usd", cap=100, period="minute")


async def account(bench: Bench, key: str) -> Account:
    """That of one gate, which must be there."""
    return next(account for account in await examined(bench.store).accounts() if account.gate.key == key)


@asynchronous
class TestAccounts:
    async def test_every_gate_is_there_as_it_is(self, bench: Bench) -> None:
        await bench.declare(USD, GateRule("limit:k", concurrency=2), GateRule("limit:r", interval_us=1_000, burst=9))
        await bench.add_many(3, limits=("k", "usd"), keys=("r",), costs={"usd": 5})
        assert len(await bench.hand().claim(3)) == 2
        accounts = await examined(bench.store).accounts()
        assert [account.gate for account in accounts] == await bench.store.gates()
        assert [account.gate.key for account in accounts] == ["limit:k", "limit:r", "limit:usd"]

    async def test_slots_are_those_of_running_jobs_also_when_the_rule_has_changed(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=2))
        await bench.add_many(3, keys=("k",))
        hand = bench.hand()
        first, _ = await hand.claim(3)
        assert ((await account(bench, "limit:k")).slots, (await account(bench, "limit:k")).leaked) == (2, 0)
        await bench.change(GateChange("limit:k", rule=GateRule("limit:k", interval_us=1_000)))
        await hand.succeed(first)
        assert ((await account(bench, "limit:k")).slots, (await account(bench, "limit:k")).leaked) == (1, 0)

    @pytest.mark.parametrize("where", ["limits", "keys"])
    async def test_reserved_is_what_running_jobs_cost_in_the_period_that_is_counted(
        self, bench: Bench, where: str
    ) -> None:
        await bench.declare(USD)
        for amount in (1, 2, 4, 8):
            names = {"limits": ("usd",)} if where == "limits" else {"keys": ("usd",)}
            await bench.put(bench.job(costs={"usd": amount}, **names))  # type: ignore[arg-type]  # one of two options
        hand = bench.hand(ttl_ms=2 * MINUTE_MS)
        await hand.claim(1)
        bench.clock.now_ms = ends_ms("minute", bench.clock.now_ms)
        two, _ = await hand.claim(2)
        seen = await account(bench, "limit:usd")
        assert (seen.reserved, seen.gate.spent, seen.uncounted) == (6, 6, 0)
        await hand.settle(Succeed(two.id, two.token), spent={two.id: {"usd": 20}})
        seen = await account(bench, "limit:usd")
        assert (seen.reserved, seen.gate.spent, seen.uncounted) == (4, 24, 0)

    async def test_a_probe_is_known_while_it_runs(self, bench: Bench) -> None:
        await bench.put(
            *(bench.job(breaker="api") for _ in range(2)), rules=[GateRule("breaker:api", breaker=BreakerRule())]
        )
        await bench.change(GateChange("breaker:api", trip_ms=1_000))
        assert not (await account(bench, "breaker:api")).stuck
        bench.clock.advance(1_000)
        hand = bench.hand()
        probe = await hand.take()
        seen = await account(bench, "breaker:api")
        assert (seen.gate.probe_token, seen.probed, seen.stuck) == (probe.token, True, False)
        await hand.release(probe)
        seen = await account(bench, "breaker:api")
        assert (seen.gate.probe_token, seen.probed, seen.stuck) == (0, False, False)
