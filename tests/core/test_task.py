"""A declaration that cannot work fails at import; a call becomes exactly one job and the gates it names."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidArguments, InvalidOption, InvalidTask, PayloadTooLarge, UsageError
from limpet.core.flows.refs import Ref
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job, Lane, OnDuplicate, Policy, Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.unique import content_key
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.limits.unit import Cost
from limpet.core.tasks.task import PLAIN, Inject, Options, TaskSpec, build_job

ID = b"i" * 16


def send(customer: str, to: str = "nobody") -> None: ...


async def fetch(url: str) -> str:
    return url


def loose(value: Any) -> None: ...


def job_of(spec: TaskSpec, *args: Any, options: Options = PLAIN, **kwargs: Any) -> Job:
    return build_job(spec, spec.signature.bind(args, kwargs), options, id=ID)[0]


# -- declarations


def test_the_defaults_are_the_documented_ones() -> None:
    spec = TaskSpec.declare(send)
    assert (spec.name, spec.queue, spec.priority, spec.executor) == (f"{__name__}.send", "default", 5, "thread")
    assert spec.policy == Policy()
    assert spec.retry == Retry()
    assert (spec.tenant, spec.limits, spec.breaker, spec.needs, spec.unique) == (None, (), None, (), None)
    assert TaskSpec.declare(fetch).executor == "async"


def test_every_option_is_kept() -> None:
    limit = Limit("c:{customer}", rate="10/m")
    spec = TaskSpec.declare(
        send,
        name="email.send",
        queue="email",
        priority="critical",
        timeout=30,
        hard_timeout=50,
        retry=[1, 2],
        tenant="customer",
        limits=[limit],
        breaker=Breaker(failures=2),
        needs=["smtp"],
        tags=["mail"],
        unique=True,
        unique_for=60,
        unique_states=["ready"],
        on_duplicate="debounce",
        executor="process",
        max_lost=1,
        cost=2,
        max_payload_bytes=1_000,
        max_result_bytes=500,
    )
    assert (spec.name, spec.queue, spec.priority, spec.executor) == ("email.send", "email", 0, "process")
    assert (spec.policy.timeout_ms, spec.policy.hard_timeout_ms, spec.policy.max_lost) == (30_000, 50_000, 1)
    assert (spec.policy.attempts, spec.policy.delays_ms, spec.policy.max_result_bytes) == (3, (1_000, 2_000), 500)
    assert (spec.limits, spec.breaker, spec.needs, spec.tags) == ((limit,), Breaker(failures=2), ("smtp",), ("mail",))
    assert (spec.unique, spec.unique_for_ms, spec.unique_states) == (True, 60_000, frozenset({State.ready}))
    assert (spec.on_duplicate, spec.cost, spec.max_payload_bytes) == ("debounce", Cost(2), 1_000)


def generates() -> Iterator[int]:
    yield 1


async def streams() -> AsyncIterator[int]:
    yield 1


POOL = object()


def injected(a: int, db: object = Inject(POOL)) -> None: ...


def injected_wrong(*args: int) -> None: ...


def injected_by_position(db: object = Inject(POOL), *more: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "says"),
    [
        (send, {"budgets": []}, r"no option 'budgets'.*limits=\[Budget"),
        (send, {"max_retries": 3}, r"no option 'max_retries'.*retry=Retry\(attempts=6"),
        (send, {"prioritty": 1}, r"no option 'prioritty'.*did you mean 'priority'"),
        (send, {"priority": "urgent"}, r"priority='urgent'"),
        (send, {"name": "a b"}, r"name='a b'"),
        (send, {"queue": ""}, r"queue=''"),
        (send, {"timeout": -1}, r"timeout=-1"),
        (send, {"timeout": 0}, r"timeout=0"),
        (send, {"timeout": 30, "hard_timeout": 20}, r"hard_timeout=20 ends before timeout=30"),
        (send, {"hard_timeout": 3}, r"hard_timeout=3 ends before timeout, which is 30m by default"),
        (send, {"retry": "x"}, r"retry='x'"),
        (send, {"tenant": "custmer"}, r"tenant='custmer'.*did you mean 'customer'"),
        (send, {"limits": [Limit("x:{custmer}", rate="1/s")]}, r"'custmer'.*did you mean 'customer'"),
        (send, {"limits": ["10/m"]}, r"limits= holds '10/m'"),
        (send, {"limits": None}, r"limits= holds None \(pass Limit"),
        (send, {"limits": [Limit("k", rate="1/s"), Limit("k", concurrency=1)]}, r"two limits have the key 'k'"),
        (send, {"breaker": "yes"}, r"breaker='yes'"),
        (send, {"needs": "gpu"}, r"needs='gpu'"),
        (send, {"unique": 3}, r"unique must be .* got 3"),
        (send, {"unique": "{ordr}"}, r"'ordr'"),
        (send, {"unique": True, "unique_states": ["gone"]}, r"'gone'"),
        (send, {"unique": True, "on_duplicate": "x"}, r"on_duplicate='x'"),
        (send, {"executor": "threads"}, r"did you mean 'thread'"),
        (send, {"executor": "async"}, r"would block the loop"),
        (fetch, {"executor": "thread"}, r"needs no thread"),
        (send, {"max_lost": 0}, r"max_lost must be an integer ≥ 1, got 0"),
        (send, {"cost": -1}, r"cost must be .* got -1"),
        (send, {"max_payload_bytes": 0}, r"max_payload_bytes must be .* got 0"),
        (generates, {}, r"is a generator"),
        (streams, {}, r"is a generator"),
        (injected_by_position, {}, r"'db' cannot be passed by name"),
        (partial(send, "x"), {}, r"no name of its own"),
        (int, {"name": "x"}, r"no signature"),
    ],
)
def test_what_cannot_work_is_refused_by_name(fn: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        TaskSpec.declare(fn, **options)
    assert isinstance(caught.value, InvalidOption | InvalidTask)


def test_the_hard_timeout_follows_the_soft_one() -> None:
    assert TaskSpec.declare(send, timeout=30).policy.hard_timeout_ms == 40_000
    off = TaskSpec.declare(send, timeout=None).policy
    assert (off.timeout_ms, off.hard_timeout_ms) == (None, None)
    assert TaskSpec.declare(send, timeout=None, hard_timeout=60).policy.hard_timeout_ms == 60_000


def test_injected_parameters_are_known_to_the_worker_and_to_nobody_else() -> None:
    spec = TaskSpec.declare(injected)
    assert spec.injected == {"db": POOL}
    assert list(spec.signature.parameters) == ["a"]
    assert job_of(spec, 1).args == b'{"a":1}'
    with pytest.raises(InvalidArguments, match="takes 1 positional"):
        spec.signature.bind((1, 2), {})


def test_callable_objects_and_wrapped_functions_can_be_tasks() -> None:
    class Handler:
        async def __call__(self, a: int) -> None: ...

    spec = TaskSpec.declare(Handler())
    assert spec.executor == "async"
    assert spec.name.endswith("Handler")
    assert TaskSpec.declare(partial(send, "x"), name="mail").name == "mail"


def test_short_forms_of_breaker_and_limits() -> None:
    assert TaskSpec.declare(send, breaker=True).breaker == Breaker()
    assert TaskSpec.declare(send, breaker=False).breaker is None
    limit = Limit("smtp", concurrency=1)
    assert TaskSpec.declare(send, limits=limit).limits == (limit,)  # type: ignore[arg-type]  # one is a list too


SCRIPT = """
from limpet.core.tasks.task import TaskSpec
class Mail:
    @staticmethod
    def send(): ...
if __name__ in ("__main__", "__mp_main__"):
    print(TaskSpec.declare(Mail.send).name)
"""


def test_in_a_script_the_files_stem_stands_for_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop").mkdir()
    script = tmp_path / "shop" / "tasks.py"
    script.write_text(SCRIPT)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "tasks.Mail.send"
    module = subprocess.run(
        [sys.executable, "-m", "shop.tasks"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert module.stdout.strip() == "shop.tasks.Mail.send"
    runpy.run_path(str(script), run_name="__mp_main__")
    assert capsys.readouterr().out.strip() == "tasks.Mail.send"


# -- jobs


def test_a_plain_call_is_a_plain_job() -> None:
    spec = TaskSpec.declare(send, name="email.send", queue="email", priority="high")
    job, rules = build_job(spec, spec.signature.bind(("acme",), {"to": "a@b.c"}), id=ID)
    assert job == Job(ID, Lane("email", "email.send", 3), Policy(), b'{"customer":"acme","to":"a@b.c"}')
    assert rules == ()


def test_an_empty_options_record_is_as_plain_as_the_shared_one() -> None:
    spec = TaskSpec.declare(send)
    assert job_of(spec, "acme", options=Options()) == job_of(spec, "acme")


def test_options_reach_the_job() -> None:
    parent = b"p" * 16
    options = PLAIN.replace(
        delay=5,
        expires_in=9,
        priority="low",
        queue="slow",
        tenant="vip",
        unique="k",
        unique_for=7,
        unique_states=["ready"],
        after=[parent],
        if_parent_fails="wait",
        needs=["gpu", "disk"],
        tags=["b", "a"],
        cost=3,
        timeout=2,
        retry=1,
    )
    spec = TaskSpec.declare(send, name="t", needs=["smtp"], tags=["a"])
    job = job_of(spec, "acme", options=options)
    assert job.lane == Lane("slow", "t", 8, "vip", ("disk", "gpu", "smtp"))
    assert job.policy == Policy(attempts=1, timeout_ms=2_000, hard_timeout_ms=12_000)
    assert (job.delay_ms, job.due_at_ms, job.expires_ms) == (5_000, None, 9_000)
    assert job.unique == Unique("k", 7_000, frozenset({State.ready}))
    assert (job.after, job.if_parent_fails, job.cost, job.tags) == ((parent,), "wait", 3, ("a", "b"))


def test_the_flow_and_meta_of_a_plain_job_are_kept() -> None:
    spec = TaskSpec.declare(send)
    job, _ = build_job(spec, {"customer": "a"}, id=ID, flow=b"f" * 16, meta=b"{}")
    assert (job.flow, job.meta, job.lane.task) == (b"f" * 16, b"{}", spec.name)


@pytest.mark.parametrize(
    ("tenant", "args", "found"),
    [
        ("customer", ("acme",), "acme"),
        ("to", ("acme",), "nobody"),
        (lambda args: args["customer"].upper(), ("acme",), "ACME"),
        (lambda args: None, ("acme",), None),
    ],
)
def test_the_tenant_is_read_from_the_arguments(tenant: Any, args: tuple[Any, ...], found: str | None) -> None:
    assert job_of(TaskSpec.declare(send, tenant=tenant), *args).lane.tenant == found


def maybe(tenant: int | None = None) -> None: ...


def test_an_argument_that_is_none_names_no_tenant() -> None:
    spec = TaskSpec.declare(maybe, tenant="tenant")
    assert job_of(spec).lane.tenant is None
    assert job_of(spec, None).lane.tenant is None
    assert job_of(spec, 7).lane.tenant == "7"
    assert job_of(spec, 7, options=PLAIN.replace(tenant="other")).lane.tenant == "other"


def test_a_tenant_that_is_no_text_is_refused() -> None:
    spec = TaskSpec.declare(send, tenant=lambda args: 3)  # type: ignore[arg-type,return-value]  # a careless function
    with pytest.raises(InvalidOption, match="answered 3"):
        job_of(spec, "acme")


@dataclass
class Order:
    customer: str
    id: int


def ship(order: Order, depot: str = "main") -> None: ...


def test_limits_and_breaker_become_gates() -> None:
    spec = TaskSpec.declare(
        ship,
        name="ship",
        limits=[
            Limit("smtp", concurrency=20),
            Limit("customer:{order.customer}", rate="10/m"),
            Limit("depot:{depot}:{queue}", concurrency=1),
            Limit("own:{task}", rate="5/s"),
        ],
        breaker=Breaker("carrier"),
    )
    values = spec.signature.bind((Order("acme", 1),), {})
    job, rules = build_job(spec, values, id=ID)
    assert job.lane.limits == ("smtp", "own:ship")
    assert job.lane.keys == ("customer:acme", "depot:main:default")
    assert job.lane.breaker == "carrier"
    assert [rule.key for rule in rules] == [
        "limit:smtp",
        "limit:own:ship",
        "limit:customer:acme",
        "limit:depot:main:default",
        "breaker:carrier",
    ]
    assert rules[2] == GateRule("limit:customer:acme", interval_us=6_000_000, burst=10)
    assert {f"limit:{key}" for key in (*job.lane.limits, *job.lane.keys)} == {rule.key for rule in rules[:4]}
    by_name = spec.signature.bind_named({"order": {"customer": "acme", "id": 1}})
    assert build_job(spec, by_name, id=ID) == (job, rules)


def test_a_missing_value_of_a_key_is_named() -> None:
    spec = TaskSpec.declare(loose, limits=[Limit("c:{value.customer}", rate="1/s")])
    with pytest.raises(InvalidArguments, match=r"reads 'value.customer', but int has no 'customer'"):
        build_job(spec, {"value": 7}, id=ID)


@pytest.mark.parametrize("key", ["c:{order.customer}", "c:{order.id}", "c:{order}"])
def test_a_key_cannot_be_read_from_a_result_that_is_not_known_yet(key: str) -> None:
    spec = TaskSpec.declare(ship, limits=[Limit(key, rate="1/s")])
    with pytest.raises(InvalidArguments, match="another job's result and not known yet"):
        build_job(spec, {"order": Ref(b"p" * 16)}, id=ID)


def test_jobs_among_the_arguments_become_parents_and_come_first() -> None:
    one, two, three = b"1" * 16, b"2" * 16, b"3" * 16
    spec = TaskSpec.declare(ship)
    options = Options().replace(after=[id_text(three), id_text(two)])
    job, _ = build_job(spec, {"order": [Ref(two), Ref(one)]}, options, id=ID)
    assert job.after == (two, one, three)
    assert job.args == b'{"order":{"$jobs":[0,2]}}'


@pytest.mark.parametrize("on_duplicate", ["replace", "debounce"])
def test_a_job_that_waits_for_others_replaces_none(on_duplicate: OnDuplicate) -> None:
    """The one that is there would take its arguments, and not wait for the results in them."""
    spec, parent = TaskSpec.declare(loose), b"p" * 16
    options = Options().replace(unique="k", on_duplicate=on_duplicate)
    assert build_job(spec, {"value": 1}, options, id=ID)[0].unique == Unique("k", on_duplicate=on_duplicate)
    for values, waiting in (
        ({"value": Ref(parent)}, options),
        ({"value": 1}, options.replace(after=[id_text(parent)])),
    ):
        with pytest.raises(InvalidOption, match=f"on_duplicate='{on_duplicate}' of a job that waits for others"):
            build_job(spec, values, waiting, id=ID)


def test_data_that_looks_like_a_reference_is_refused_in_a_job_with_parents() -> None:
    spec = TaskSpec.declare(loose)
    assert build_job(spec, {"value": {"$job": 0}}, id=ID)
    with pytest.raises(InvalidArguments, match="rename that key"):
        build_job(spec, {"value": {"$job": 0}}, Options().replace(after=[id_text(b"p" * 16)]), id=ID)


def test_lanes_are_made_once_and_forgotten_in_time() -> None:
    spec = TaskSpec.declare(send, tenant="customer")
    assert job_of(spec, "a").lane is job_of(spec, "a").lane
    assert job_of(spec, "a").lane is not job_of(spec, "b").lane
    for number in range(10_050):
        job_of(spec, str(number))
    assert len(spec.lanes) <= 10_000


def test_policies_are_made_once() -> None:
    spec = TaskSpec.declare(send)
    options = PLAIN.replace(retry=2)
    assert job_of(spec, "a", options=options).policy is job_of(spec, "b", options=options).policy
    assert job_of(spec, "a").policy is spec.policy


@pytest.mark.parametrize(
    ("declared", "called", "key"),
    [
        (None, None, None),
        (None, "k", "k"),
        (True, None, content_key("t", {"customer": "acme"})),
        ("{customer}/{task}", None, "acme/t"),
        ("to:{to}", None, "to:nobody"),
        (lambda args: args["customer"], None, "acme"),
        (True, "k", "k"),
        (True, False, None),
        ("{customer}", "{literal}", "{literal}"),
    ],
)
def test_the_unique_key_is_the_calls_or_the_tasks(declared: Any, called: Any, key: str | None) -> None:
    settings: dict[str, Any] = {"unique_for": 5, "on_duplicate": "debounce"} if declared else {}
    spec = TaskSpec.declare(send, name="t", unique=declared, **settings)
    options = PLAIN if called is None else PLAIN.replace(unique=called)
    found = job_of(spec, "acme", options=options).unique
    assert (found.key if found else None) == key
    if found is not None:
        assert (found.for_ms, found.on_duplicate) == ((5_000, "debounce") if declared else (None, "existing"))


def test_keys_that_are_filled_alike_count_a_job_once() -> None:
    usd = Budget("bank:{to}", usd=1, over="refuse")
    limits = [Limit(key, rate="1/m", learns=True) for key in ("bank:{customer}", "bank:{to}", "bank:hq")]
    spec = TaskSpec.declare(send, limits=[*limits, usd])
    two, rules = build_job(spec, {"customer": "a", "to": "b"}, id=ID)
    assert (two.lane.limits, two.lane.keys) == (("bank:hq",), ("bank:a", "bank:b", "usd/day:bank:b"))
    assert (spec.learns(two.lane), [rule.key for _, rule in spec.caps(two.lane)]) == (
        "bank:a",
        ["limit:usd/day:bank:b"],
    )
    one, rules = build_job(spec, {"customer": "a", "to": "a"}, id=ID)
    assert (one.lane.limits, one.lane.keys) == (("bank:hq",), ("bank:a", "usd/day:bank:a"))
    assert [rule.key for rule in rules] == ["limit:bank:hq", "limit:bank:a", "limit:usd/day:bank:a"]
    assert (spec.learns(one.lane), [rule.key for _, rule in spec.caps(one.lane)]) == (
        "bank:a",
        ["limit:usd/day:bank:a"],
    )
    none = job_of(spec, "hq", "hq")
    assert (none.lane.limits, none.lane.keys) == (("bank:hq",), ("usd/day:bank:hq",))
    assert spec.learns(none.lane) == "bank:hq"


def test_keys_that_are_filled_alike_and_say_different_things_are_refused() -> None:
    spec = TaskSpec.declare(send, limits=[Limit("{customer}:out", rate="1/m"), Limit("in:{to}", rate="2/m")])
    assert job_of(spec, "a", "b").lane.keys == ("a:out", "in:b")
    with pytest.raises(InvalidArguments, match=r"two limits of .* have the key 'in:out' here"):
        job_of(spec, "in", "out")


@pytest.mark.parametrize("value", ["usd/day:llm:acme", "tokens:openai"])
def test_nobody_can_name_a_budget_or_a_bucket_by_an_argument(value: str) -> None:
    spec = TaskSpec.declare(send, limits=[Limit("{customer}", rate="1/m")])
    with pytest.raises(InvalidArguments, match=rf"becomes '{value}' here, which is how buckets and budgets are called"):
        job_of(spec, value)
    named = TaskSpec.declare(send, limits=[Limit("tokens:{customer}", rate="1/m")])
    assert job_of(named, "acme").lane.keys == ("tokens:acme",)


def test_a_key_that_could_mean_the_task_or_a_parameter_is_refused() -> None:
    def run(task: str) -> None: ...

    with pytest.raises(InvalidTask, match=r"names \{task\}, which is both the task itself and a parameter"):
        TaskSpec.declare(run, limits=[Limit("t:{task}", rate="1/m")])


async def later(customer: str) -> int:
    return 1


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (lambda: 3, "takes no arguments"),
        (later, "is async"),
        (lambda custmer: 3, r"asks for 'custmer', .*did you mean 'customer'"),
    ],
)
def test_a_cost_function_that_cannot_be_asked_is_refused(cost: Any, says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        TaskSpec.declare(send, cost=cost)


def test_what_a_cost_function_raises_names_the_task() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        job_of(TaskSpec.declare(send, name="send", cost=lambda customer: 1 // 0), "acme")
    assert "'send'" in raised.value.__notes__[0]


def test_cost_may_be_computed() -> None:
    spec = TaskSpec.declare(send, cost=lambda args: len(str(args["customer"])))
    assert job_of(spec, "acme").cost == 4
    assert job_of(spec, "acme", options=PLAIN.replace(cost=9)).cost == 9
    with pytest.raises(InvalidOption, match=r"cost must be .* got -1"):
        job_of(TaskSpec.declare(send, cost=lambda args: -1), "acme")


@pytest.mark.parametrize(
    "cost",
    [
        lambda customer, **_: {"tokens": len(customer), "usd": 0.01},
        lambda to, customer: {"tokens": len(customer), "usd": 0.01},
        lambda customer: {"tokens": len(customer), "usd": 0.01},
        lambda args: {"tokens": len(args["customer"]), "usd": 0.01},
        {"tokens": 4, "usd": 0.01},
    ],
)
def test_a_cost_of_several_units_is_declared_or_computed_from_the_arguments(cost: Any) -> None:
    spec = TaskSpec.declare(send, cost=cost)
    job = job_of(spec, "acme")
    assert (job.cost, job.costs) == (1, {"tokens": 4, "usd": 10_000})
    job = job_of(spec, "acme", options=PLAIN.replace(cost={"cost": 3, "usd": 1}))
    assert (job.cost, job.costs) == (3, {"tokens": 4, "usd": 1_000_000})


def test_a_function_of_the_cost_gets_defaults_too_and_may_name_no_other_parameter() -> None:
    assert job_of(TaskSpec.declare(send, cost=lambda to: 2 * len(to)), "acme").cost == 12
    with pytest.raises(InvalidTask, match=r"cost= asks for 'custmer'.*did you mean 'customer'"):
        TaskSpec.declare(send, cost=lambda custmer, to: 1)


def test_buckets_and_budgets_become_gates_beside_their_limits() -> None:
    spec = TaskSpec.declare(
        send,
        name="ask",
        limits=[
            Budget("llm:{customer}", usd=50),
            Limit("model:{customer}", rate="500/m", learns=True, buckets={"tokens": "60000/m"}),
            Limit("all", buckets={"usd": "5/h"}),
            Budget("all", tokens=9, cost=4, per="hour"),
        ],
    )
    job, rules = build_job(spec, spec.signature.bind(("acme", "x"), {}), id=ID)
    assert job.lane.limits == ("all", "usd:all", "cost/hour:all", "tokens/hour:all")
    assert job.lane.keys == ("model:acme", "tokens:model:acme", "usd/day:llm:acme")
    assert {rule.key for rule in rules} == {f"limit:{key}" for key in (*job.lane.limits, *job.lane.keys)}
    assert spec.learns(job.lane) == "model:acme"
    assert spec.learns(replace(job.lane, keys=("other",))) is None


def test_the_lane_of_a_task_has_what_depends_on_arguments_as_it_is_written() -> None:
    lane = TaskSpec.declare(
        send,
        name="mail.send",
        queue="mail",
        limits=[
            Limit("smtp:{task}", rate="1/s"),
            Limit("m:{to}", buckets={"tokens": "9/s"}),
            Budget("llm:{to}", usd=1),
        ],
    ).pattern
    assert (lane.task, lane.queue, lane.limits) == ("mail.send", "mail", ("smtp:mail.send",))
    assert lane.keys == ("m:{to}", "tokens:m:{to}", "usd/day:llm:{to}")


def test_the_budgets_of_a_lane_have_their_keys_and_say_whether_they_refuse() -> None:
    spec = TaskSpec.declare(
        send, limits=[Budget("a", usd=1), Budget("b:{to}", usd=2, tokens=9, over="refuse"), Limit("c", concurrency=1)]
    )
    lane = job_of(spec, "acme", to="x").lane
    assert [(budget.over, rule.key, rule.cap) for budget, rule in spec.caps(lane)] == [
        ("wait", "limit:usd/day:a", 1_000_000),
        ("refuse", "limit:tokens/day:b:x", 9),
        ("refuse", "limit:usd/day:b:x", 2_000_000),
    ]


def test_what_can_never_start_is_refused_at_declaration() -> None:
    with pytest.raises(InvalidTask, match=r"needs \$2, and Budget\('llm'\) is \$1 a day.*lower cost=, or raise"):
        TaskSpec.declare(send, cost={"usd": 2}, limits=[Budget("llm", usd=1)])
    with pytest.raises(InvalidTask, match=r"two limits have the key 'tokens:k'"):
        TaskSpec.declare(send, limits=[Limit("k", buckets={"tokens": "60/s"}), Limit("tokens:k", rate="1/s")])


def test_the_tasks_own_size_limit_counts() -> None:
    spec = TaskSpec.declare(send, max_payload_bytes=30)
    job_of(spec, "x" * 10)
    with pytest.raises(PayloadTooLarge):
        job_of(spec, "x" * 20)


def test_a_task_known_by_name_takes_any_object() -> None:
    spec = TaskSpec.named("report.make", queue="reports")
    job, rules = build_job(spec, spec.signature.bind_named({"year": 2030}), id=ID)
    assert job == Job(ID, Lane("reports", "report.make"), Policy(), b'{"year":2030}')
    assert rules == ()
    with pytest.raises(InvalidTask, match="known by name only"):
        spec.fn()
    with pytest.raises(InvalidOption, match="task=''"):
        TaskSpec.named("")


def test_the_learning_limit_is_found_in_any_lane() -> None:
    limits = [Limit("smtp", concurrency=2), Limit("{to}", rate="1/s"), Limit("ai:{customer}", rate="1/s", learns=True)]
    spec = TaskSpec.declare(send, limits=limits)
    assert spec.learns(job_of(spec, "acme").lane) == "ai:acme"
    assert spec.learns(Lane("q", spec.name)) is None  # stored before the limits were declared
    assert TaskSpec.declare(send, limits=limits[:2]).learns(job_of(spec, "acme").lane) is None
    assert spec.filled(job_of(spec, "acme").lane, "ai:{customer}") == "ai:acme"
    assert spec.filled(job_of(spec, "acme").lane, "elsewhere:{customer}") == "elsewhere:{customer}"
    fixed = TaskSpec.declare(send, name="t", limits=[Limit("x:{task}", concurrency=1, learns=True)])
    assert fixed.learns(job_of(fixed, "acme").lane) == "x:t"


@given(st.text(max_size=50), st.text(max_size=50))
def test_what_is_enqueued_is_what_runs(customer: str, to: str) -> None:
    spec = TaskSpec.declare(send)
    assert spec.signature.decode(job_of(spec, customer, to=to).args) == ([], {"customer": customer, "to": to})


IDLE = [{"unique_for": 60}, {"unique_states": ["ready"]}, {"on_duplicate": "replace"}]


@pytest.mark.parametrize("options", IDLE)
def test_a_setting_of_a_key_that_is_not_there_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    for unique in ({}, {"unique": None}, {"unique": False}):
        with pytest.raises(InvalidOption, match=f"{name}= does nothing without unique="):
            TaskSpec.declare(send, **options, **unique)
    plain = TaskSpec.declare(send)
    with pytest.raises(InvalidOption, match=f"{name}= does nothing for this job .*add unique=True"):
        job_of(plain, "acme", options=PLAIN.replace(**options))
    assert job_of(plain, "acme", options=PLAIN.replace(**options, unique=True)).unique is not None


@pytest.mark.parametrize("options", IDLE)
def test_a_call_may_change_the_settings_of_its_tasks_key(options: dict[str, Any]) -> None:
    spec = TaskSpec.declare(send, unique=True, unique_for=5)
    assert job_of(spec, "acme", options=PLAIN.replace(**options)).unique is not None
    assert job_of(spec, "acme", options=PLAIN.replace(unique=False)).unique is None
