"""Budgets as callers meet them: what can never fit, or does not fit now, is refused before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from limpet import Budget, BudgetExceeded, InvalidArguments, JobHandle, Limit, Limpet, chain, current_job
from limpet.core.gate import Gate
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import State
from limpet.ops import LimitChange, Operator
from limpet.stores.sqlite.library import library


async def gate_left(app: Limpet, key: str) -> int:
    (gate,) = await app.store.gates(f"limit:{key}")
    assert gate.rule.cap is not None
    return gate.rule.cap - gate.spent


async def test_a_job_waits_until_its_budget_has_room(app: Limpet) -> None:
    @app.task(limits=[Budget("llm:{team}", usd=1, per="month")], cost=lambda usd, **_: {"usd": usd})
    async def ask(team: str, usd: float, really: float | None = None) -> None:
        if really is not None:
            current_job().spent(usd=really)

    async with app:
        first = await ask.enqueue("acme", 0.7, 0.2)
        second = await ask.enqueue("acme", 0.8)
        third = await ask.enqueue("acme", 0.1)
        other = await ask.enqueue("umbrella", 1.0)
        await app.work(until_empty=True)
        states = [(await job.status()).state for job in (first, second, third, other)]
        assert states == [State.succeeded, State.succeeded, State.ready, State.succeeded]
        assert await gate_left(app, "usd/month:llm:acme") == 0
        assert (await first.status()).spent == {"usd": 0.2}
        assert (await second.status()).spent == {}


async def test_a_cost_above_the_whole_budget_is_refused_by_every_way_in(app: Limpet) -> None:
    @app.task(name="ask", limits=[Budget("llm", usd=1)], cost=lambda usd: {"usd": usd})
    async def ask(usd: float) -> None: ...

    says = r"needs \$1.50, and the budget 'llm' is \$1 a day: it would wait for ever \(split the work"
    async with app:
        with pytest.raises(InvalidArguments, match=says):
            await ask.enqueue(1.5)
        with pytest.raises(InvalidArguments, match=rf"jobs\[1\]: .*{says}"):
            await app.enqueue_many([ask.job(0.5), ask.job(1.5)])
        flow = app.flow("f")
        flow.add(ask.job(1.5), name="dear")
        with pytest.raises(InvalidArguments, match=rf"node 'dear': .*{says}"):
            await flow.enqueue()
        with pytest.raises(InvalidArguments, match=r"needs \$2"):
            await ask.options(cost={"usd": 2}).enqueue(0.1)
        assert (await app.store.count()).enqueued == 0


async def test_what_an_operator_has_set_counts_and_not_what_the_code_declares(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = Limpet(f"sqlite:///{path}")

    @app.task(name="ask", limits=[Budget("llm:{team}", usd=1)], cost=lambda team, usd: {"usd": usd})
    async def ask(team: str, usd: float) -> None: ...

    async with app:
        await Operator(app.store, actor="ada").set_limit("llm:acme", LimitChange(budgets={"usd": "2/day"}))
        await ask.enqueue("acme", 1.5)
        await app.enqueue_many([ask.job("acme", 2.0), ask.job("umbrella", 1.0)])
        says = (
            r"needs \$2.50, and the budget 'llm:acme' is \$2 a day, as an operator has set it: it would wait for ever"
        )
        with pytest.raises(InvalidArguments, match=says) as refused:
            await ask.enqueue("acme", 2.5)
        assert "limpet limits set llm:acme --budget usd=2.5/day" in refused.value.fix
        with pytest.raises(InvalidArguments, match=r"jobs\[1\]: .*the budget 'llm:umbrella' is \$1 a day: it would"):
            await app.enqueue_many([ask.job("acme", 2.0), ask.job("umbrella", 1.5)])
        conn = library.connect(str(path))  # who holds a transaction of their own cannot ask the store
        with pytest.raises(InvalidArguments, match=r"needs \$1.50, .*declare a larger budget"):
            await ask.options(conn=conn).enqueue("acme", 1.5)
        with pytest.raises(InvalidArguments, match=r"jobs\[0\]: .*needs \$1.50"):
            await app.enqueue_many([ask.job("acme", 1.5)], conn=conn)
        conn.close()
        assert (await app.store.count()).enqueued == 3


async def test_a_budget_that_refuses_and_is_too_small_for_the_job_says_so(app: Limpet) -> None:
    @app.task(name="ask", limits=[Budget("llm", usd=1, over="refuse")], cost={"usd": 0.4})
    async def ask() -> None: ...

    async with app:
        await Operator(app.store, actor="ada").set_limit("llm", LimitChange(budgets={"usd": "0.3/day"}))
        with pytest.raises(
            InvalidArguments, match=r"needs \$0.40, and the budget 'llm' is \$0.30 a day, as an operator"
        ):
            await ask.enqueue()


async def test_the_budgets_of_many_jobs_are_asked_for_in_one_read(app: Limpet, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(limits=[Budget("llm:{team}", usd=1, tokens=9, over="refuse")], cost={"usd": 0.1, "tokens": 1})
    async def ask(team: str) -> None: ...

    @app.task(limits=[Budget("llm:{team}", usd=1)], cost={"usd": 0.1})
    async def wait(team: str) -> None: ...

    asked: list[Sequence[str] | None] = []

    async def gates(prefix: str = "", *, keys: Sequence[str] | None = None) -> list[Gate]:
        asked.append(keys)
        return await read(prefix, keys=keys)

    async with app:
        read = app.store.gates
        monkeypatch.setattr(app.store, "gates", gates)
        await app.enqueue_many([job.job(team) for team in ("a", "b", "c") for job in (ask, wait)])
        await wait.enqueue("a")
    (keys,) = asked
    assert keys == [f"limit:{unit}/day:llm:{team}" for team in "abc" for unit in ("tokens", "usd")]


async def test_a_budget_that_refuses_says_what_is_left_and_until_when(app: Limpet) -> None:
    @app.task(name="ask", limits=[Budget("llm:{team}", usd=1, per="month", over="refuse")], cost={"usd": 0.4})
    async def ask(team: str) -> None: ...

    async with app:
        await ask.enqueue("acme")
        await app.work(until_empty=True)
        with pytest.raises(BudgetExceeded, match=r"budget 'llm:acme' has \$0.60 of \$1 left this month") as refused:
            await ask.options(cost={"usd": 0.7}).enqueue("acme")
        error = refused.value
        assert (error.key, error.unit, error.left, error.needs) == ("llm:acme", "usd", 0.6, 0.7)
        assert error.until is not None
        assert timedelta() < error.until - datetime.now(UTC) <= timedelta(days=31)
        assert "limpet limits set llm:acme --budget usd=1.1/month" in error.fix
        with pytest.raises(BudgetExceeded, match=r"jobs\[1\]: .*this needs \$0.80"):
            await app.enqueue_many([ask.job("acme"), ask.job("acme"), ask.job("umbrella")])
        flow = app.flow("f")
        flow.add(ask.job("acme"))
        flow.add(ask.job("acme"), name="second")
        with pytest.raises(BudgetExceeded, match=r"node 'second': "):
            await flow.enqueue()
        with pytest.raises(BudgetExceeded):
            await app.enqueue("ask", {"team": "acme"}, cost={"usd": 0.7})
        await ask.enqueue("acme")
        assert (await app.store.count()).enqueued == 2


async def test_a_job_that_is_stored_already_is_answered_and_not_refused(app: Limpet) -> None:
    """Whoever does not know whether a job has arrived asks again: that costs nothing, and a refusal would be untrue."""

    @app.task(name="ask", limits=[Budget("llm", usd=1, over="refuse")], cost=lambda usd: {"usd": usd})
    async def ask(usd: float) -> None: ...

    async with app:
        first = await ask.enqueue(0.6)
        await app.work(until_empty=True)
        again = await ask.options(id=first.id).enqueue(0.6)
        assert (again.id, again.existing) == (first.id, True)
        many = await app.enqueue_many([ask.job(0.6), ask.job(0.4)], ids=[first.id, str(uuid4())])
        assert [job.existing for job in many] == [True, False]
        with pytest.raises(BudgetExceeded, match=r"jobs\[1\]: .*this needs \$0.50"):
            await app.enqueue_many([ask.job(0.6), ask.job(0.5)], ids=[first.id, str(uuid4())])
        await Operator(app.store, actor="ada").set_limit("llm", LimitChange(budgets={"usd": "0.5/day"}))
        assert (await ask.options(id=first.id).enqueue(0.6)).existing
        assert (await app.store.count()).enqueued == 2


async def test_a_duplicate_of_a_job_that_runs_is_answered_and_not_refused(app: Limpet) -> None:
    asked: list[JobHandle[None]] = []

    @app.task(name="ask", unique="ask:{team}", limits=[Budget("llm", usd=1, over="refuse")], cost={"usd": 0.6})
    async def ask(team: str) -> None:
        asked.append(await ask.enqueue(team))
        asked.append(await ask.options(on_duplicate="replace").enqueue(team))
        with pytest.raises(BudgetExceeded):
            await ask.enqueue("another")

    async with app:
        job = await ask.enqueue("a*")
        report = await app.work(until_empty=True)
        assert report.succeeded == 1
        assert [(each.id, each.existing) for each in asked] == [(job.id, True)] * 2
        with pytest.raises(BudgetExceeded):  # the key is free again
            await ask.enqueue("a*")


async def test_what_takes_the_place_of_a_waiting_job_is_refused_when_it_does_not_fit(app: Limpet) -> None:
    @app.task(unique="ask", limits=[Budget("llm", usd=1, over="refuse")], cost=lambda usd: {"usd": usd})
    async def ask(usd: float) -> None: ...

    async with app:
        await ask.options(unique="other").enqueue(0.6)
        await app.work(until_empty=True)
        job = await ask.options(delay="1h").enqueue(0.1)
        with pytest.raises(BudgetExceeded):
            await ask.options(on_duplicate="replace").enqueue(0.5)
        assert (await ask.enqueue(0.5)).id == job.id


async def test_a_job_in_the_callers_transaction_waits_instead_of_being_refused(tmp_path: Path) -> None:
    """Asking the store would wait for the caller's own transaction."""
    path = tmp_path / "jobs.db"
    app = Limpet(f"sqlite:///{path}")

    @app.task(limits=[Budget("llm", usd=1, over="refuse")], cost={"usd": 1})
    async def ask() -> None: ...

    async with app:
        await ask.enqueue()
        await app.work(until_empty=True)
        conn = library.connect(str(path))
        conn.execute("BEGIN IMMEDIATE")
        job = await ask.options(conn=conn).enqueue()
        conn.commit()
        conn.close()
        assert (await job.status()).state is State.ready


async def test_a_cost_that_depends_on_another_jobs_result_is_said_with_the_call(app: Limpet) -> None:
    @app.task
    async def fetch() -> str:
        return "text"

    @app.task(name="ask", cost=lambda prompt: {"tokens": 12 // len(prompt)})
    async def ask(prompt: str) -> str:
        return prompt

    async with app:
        with pytest.raises(InvalidArguments, match=r"another job's result, which is not known yet \(say what"):
            await chain(fetch.job(), ask.job()).enqueue()
        job = await chain(fetch.job(), ask.options(cost={"tokens": 7}).job()).enqueue()
        (view,) = await app.store.get([id_bytes(job.id)])
        assert view is not None
        assert view.costs == {"tokens": 7}
        with pytest.raises(ZeroDivisionError):  # what the function itself raises is not hidden
            await ask.enqueue("")


async def test_a_cost_that_only_code_can_tell_is_said_by_those_who_do_not_have_it(tmp_path: Path) -> None:
    app, stranger = (Limpet(f"sqlite:///{tmp_path / 'q.db'}") for _ in range(2))

    @app.task(name="ask", limits=[Budget("llm", usd=1)], cost=lambda prompt: {"usd": len(prompt) / 10})
    async def ask(prompt: str) -> None: ...

    @app.task(name="free", cost=lambda prompt: 2 * len(prompt))
    async def free(prompt: str) -> None: ...

    async with app, stranger:
        await app.work(until_empty=True)  # which publishes what the tasks declare
        says = r"what a job of 'ask' costs is said by a function of its code.*\(say it with cost= \(--cost usd=0.02\)"
        with pytest.raises(InvalidArguments, match=says):
            await stranger.enqueue("ask", {"prompt": "hi"})
        job = await stranger.enqueue("ask", {"prompt": "hi"}, cost={"usd": 0.2})
        (view,) = await app.store.get([id_bytes(job.id)])
        assert view is not None
        assert (view.cost, view.costs) == (1, {"usd": 200_000})
        await stranger.enqueue("free", {"prompt": "nobody counts it"})


async def test_buckets_and_the_rate_of_one_key_hold_together(app: Limpet) -> None:
    @app.task(limits=[Limit("m:{model}", rate="10/h", buckets={"tokens": "60/m"})], cost={"tokens": 40})
    async def ask(model: str) -> None:
        current_job().spent(tokens=35, cost=1)

    async with app:
        jobs = await app.enqueue_many([ask.job("gpt") for _ in range(4)])
        await app.work(until_empty=True)
        states = [(await job.status()).state for job in jobs]
        assert states.count(State.succeeded) == 2  # the second leaves the bucket of 60 in debt
        (view,) = await app.store.get([id_bytes(jobs[0].id)])
        assert view is not None
        assert (view.costs, view.lane.keys) == ({"tokens": 40}, ("m:gpt", "tokens:m:gpt"))
