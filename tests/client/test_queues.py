"""Queues that code declares: a ceiling over all workers, usual retries, and the preset for calls to models."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from limpet import Breaker, Dead, InvalidOption, InvalidTask, JobDead, Limpet, Queue, Retry, State, UnknownQueue
from limpet.core.endings.retry import delay_ms
from limpet.core.gate import Gate, GateRule
from limpet.core.jobs.job import Policy
from limpet.core.tasks.declaration import Declaration, read_declaration
from limpet.core.tasks.task import PLAIN, Options, TaskSpec, build_job
from limpet.ops import LimitChange, Operator
from limpet.stores.base import Store

ID = b"i" * 16


async def ceiling(store: Store, queue: str) -> Gate:
    return next(gate for gate in await store.gates(f"queue:{queue}") if gate.key == f"queue:{queue}")


async def test_the_preset_has_the_numbers_of_the_pattern(app: Limpet) -> None:
    ai = app.ai_queues()
    assert (ai.fast.name, ai.fast.concurrency, ai.heavy.name, ai.heavy.concurrency) == ("ai-fast", 5, "ai-heavy", 2)

    @app.task(queue=ai.fast)
    async def short() -> None: ...

    @app.task(queue=ai.heavy)
    async def long() -> None: ...

    @app.task(queue="ai-heavy", retry=None)
    async def own() -> None: ...

    fast, heavy = short.spec.policy, long.spec.policy
    assert (fast.attempts, fast.base_ms, fast.factor) == (4, 1_000, 1.0)
    assert (heavy.attempts, heavy.base_ms, heavy.factor) == (3, 10_000, 2.0)
    assert own.spec.policy.attempts == 1  # the task's own word wins


def test_every_number_of_the_preset_may_be_another() -> None:
    ai = Limpet("sqlite://").ai_queues(
        "llm",
        fast_retries=0,
        fast_delay="500ms",
        fast_concurrency=50,
        heavy_retries=7,
        heavy_delay=60,
        heavy_factor=3,
        heavy_concurrency=None,
    )
    assert ai.fast == Queue("llm-fast", 50, Retry(1, base="500ms", factor=1, jitter="equal"))
    assert ai.heavy == Queue("llm-heavy", None, Retry(8, base=60, factor=3, cap=1_800, jitter="equal"))
    assert ai.heavy.rule is None


def test_a_long_delay_of_the_preset_is_not_cut_short() -> None:
    ai = Limpet("sqlite://").ai_queues(fast_delay="10m", heavy_delay="10m")
    for queue, waits in ((ai.fast, [600_000, 600_000]), (ai.heavy, [600_000, 1_200_000])):
        assert isinstance(queue.retry, Retry)
        policy = Policy(**{**queue.retry.policy_fields(), "jitter": "none"})
        assert [delay_ms(policy, attempt, random.Random(1)) for attempt in (1, 2)] == waits


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"fast_delay": -1}, "fast_delay=-1"),
        ({"heavy_delay": "soon"}, "heavy_delay='soon'"),
        ({"heavy_delay": None}, "heavy_delay=None"),
        ({"heavy_factor": 0.5}, "heavy_factor=0.5"),
        ({"heavy_factor": "2"}, "heavy_factor='2'"),
        ({"fast_retries": 2_000_000_000}, "fast_retries=2000000000"),
        ({"fast_concurrency": 0}, "fast_concurrency must be 1 or more, got 0"),
        ({"heavy_concurrency": "2"}, "heavy_concurrency must be 1 or more, got '2'"),
        ({"name": ""}, "ai_queues(name)=''"),
        ({"name": 5}, "ai_queues(name)=5"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_by_their_names(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Limpet("sqlite://").ai_queues(**numbers)
    assert words in refused.value.message
    assert refused.value.fix


def test_a_breaker_that_tasks_share_is_declared_alike() -> None:
    app = Limpet("sqlite://")
    smtp = Breaker("smtp", failures=3)
    app.task(name="send", breaker=smtp)(lambda: None)
    app.task(name="resend", breaker=smtp)(lambda: None)
    with pytest.raises(InvalidTask, match=r"'send' and 'bounce' share .* 'smtp'.*failures=3.*failures=5") as refused:
        app.task(name="bounce", breaker=Breaker("smtp"))(lambda: None)
    assert "one Breaker" in refused.value.fix
    with pytest.raises(InvalidTask, match=r"'send' and 'smtp' share the breaker 'smtp'"):
        app.task(name="smtp", breaker=True)(lambda: None)


async def test_no_more_run_at_once_than_the_queue_admits(app: Limpet) -> None:
    ai = app.ai_queues(fast_concurrency=2)
    running, most, two, go = 0, 0, asyncio.Event(), asyncio.Event()

    @app.task(queue=ai.fast, name="call")
    async def call(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        await go.wait()
        running -= 1

    @app.task(name="other")
    async def other(n: int) -> None:
        await call.spec.fn(n)

    async with app:
        await app.enqueue_many([call.job(n) for n in range(3)])
        await app.enqueue_many([other.options(queue=ai.fast).job(n) for n in range(3)])
        work = asyncio.create_task(app.work(until_empty=True, queues=[ai.fast]))
        await two.wait()
        assert (await app.store.count()).total(State.running) == 2
        go.set()
        assert ((await work).succeeded, most) == (6, 2)


async def test_an_operators_word_stays_and_clearing_brings_the_codes_back(app: Limpet) -> None:
    ai = app.ai_queues()

    @app.task(queue=ai.heavy, name="call")
    async def call() -> None: ...

    async with app:
        await app.publish()
        operator = Operator(app.store, "ada")
        await operator.set_limit("queue:ai-heavy", LimitChange(concurrency=9))
        await call.enqueue()
        assert (await ceiling(app.store, "ai-heavy")).rule.concurrency == 9
        await operator.clear_limit("queue:ai-heavy")
        assert (await ceiling(app.store, "ai-heavy")).rule.concurrency == 2
        await operator.pause("queue:ai-heavy", reason="night")
        await call.enqueue()
        gate = await ceiling(app.store, "ai-heavy")
        assert (gate.rule.concurrency, gate.paused and gate.paused.reason) == (2, "night")


async def test_what_the_retries_do_not_cure_is_dead_with_its_cause(app: Limpet) -> None:
    ai = app.ai_queues(fast_delay=0)

    @app.task(queue=ai.fast, name="call")
    async def call(bad: bool) -> None:
        raise Dead("not even a prompt") if bad else ConnectionError("the model is away")

    async with app:
        jobs = [await call.enqueue(bad) for bad in (False, True)]
        await app.work(until_empty=True)
        assert [(await job.status()).attempt for job in jobs] == [4, 1]
        with pytest.raises(JobDead, match="the model is away"):
            await jobs[0].result()
        causes = await Operator(app.store, "ada").causes()
        assert {(cause.queue, cause.message) for cause in causes} == {
            ("ai-fast", "the model is away"),
            ("ai-fast", "not even a prompt"),
        }


def test_who_asks_by_name_declares_the_same_ceiling() -> None:
    queues = {"mail": Queue("mail", 7, retry=2)}
    spec = TaskSpec.declare(lambda: None, queues, name="send", queue="mail")
    read = read_declaration(Declaration.of(spec).control())
    assert read is not None
    ours, theirs = (build_job(each, {}, PLAIN, id=ID) for each in (spec, read.spec()))
    assert ours == theirs
    assert ours[1] == (GateRule("queue:mail", concurrency=7),)
    elsewhere = build_job(spec, {}, Options().replace(queue="default"), id=ID)
    assert elsewhere[1] == ()


def refuse(make: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        make(Limpet("sqlite://", queues=["ai-fast", "ai-heavy", "mail"]))


def test_what_cannot_be_meant_is_refused() -> None:
    refuse(lambda app: app.ai_queues(fast_retries=-1), InvalidOption, "fast_retries=-1 is not a number of retries")
    refuse(lambda app: app.ai_queues(heavy_concurrency=0), InvalidOption, "concurrency must be 1 or more, got 0")
    refuse(lambda app: app.ai_queues(heavy_delay="soon"), InvalidOption, "soon")
    refuse(lambda app: app.ai_queues(heavy_factor=0.5), InvalidOption, "0.5")
    refuse(lambda app: app.ai_queues(slow_retries=1), InvalidOption, "no number 'slow_retries'.*fast_retries")
    refuse(lambda app: app.ai_queues("a b"), InvalidOption, r"ai_queues\(name\)='a b'")
    refuse(lambda app: app.ai_queues("other"), UnknownQueue, "no queue 'other-fast'")
    refuse(
        lambda app: app.task(queue=Queue("mail", concurrency=True))(print),
        InvalidOption,
        "the number must be an integer ≥ 1",
    )
    refuse(lambda app: app.task(queue=Queue("mail", 10**7))(print), InvalidOption, "limits nothing")


def test_a_queue_is_declared_once_and_before_its_tasks(app: Limpet) -> None:
    app.task(queue=Queue("mail", 3), name="a")(lambda: None)
    app.task(queue=Queue("mail", 3), name="b")(lambda: None)
    with pytest.raises(InvalidOption, match=r"queue 'mail' is declared twice: concurrency=3.* concurrency=4"):
        app.task(queue=Queue("mail", 4), name="c")(lambda: None)
    app.task(queue="ai-fast", name="early")(lambda: None)
    with pytest.raises(InvalidTask, match="task 'early' was put into queue 'ai-fast' before"):
        app.ai_queues()


async def test_no_job_of_a_program_may_pretend_to_be_an_alert(app: Limpet) -> None:
    with pytest.raises(InvalidOption, match="is for alerts alone"):
        await app.enqueue("limpet.alert", {}, queue="limpet.alerts", needs=["webhook:pager"])
    with pytest.raises(InvalidOption, match="is for alerts alone"):
        app.task(name="mine", queue="limpet.alerts")(lambda: None)
