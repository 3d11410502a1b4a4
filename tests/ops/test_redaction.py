"""Operators and secrets: queries do not tell them, edits do not overwrite them, rules are added and removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from limpet.client.published_rules import PublishedRules
from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.redaction.rule import MASK, parse_rules
from limpet.core.schedules.when import Every
from limpet.ops import InvalidQuery, Operator, Schedules
from limpet.ops.names import UnknownName
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import claim, job, kill, put
from tests.runtime.running import Bench


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


@pytest.fixture
async def operator(bench: Bench) -> Operator:
    operator = Operator(bench.store, "ada")
    await operator.redaction.add("password")
    return operator


ARGS = {"user": {"name": "ada", "password": "hunter2"}, "n": 1}


async def found(operator: Operator, query: str) -> int:
    page = await operator.jobs(query)
    assert page.cursor is None or page.jobs
    dry = await operator.cancel(query, dry_run=True) if "dead" not in query else None
    assert dry is None or dry.matched == len(page.jobs)
    return len(page.jobs)


async def test_a_query_tells_nothing_of_what_is_hidden(bench: Bench, operator: Operator) -> None:
    await bench.store.enqueue([job(args=ARGS), job(args={**ARGS, "n": 2})])
    for query in ("args.user.password:hunter2", "args.user.PASSWORD:h*", "-args.user.password:x", "args.password>5"):
        with pytest.raises(InvalidQuery, match="'password' hides it"):
            await operator.jobs(query)
        with pytest.raises(InvalidQuery, match="hides it"):
            await operator.cancel(query, dry_run=True)
        with pytest.raises(InvalidQuery, match="hides it"):
            await operator.operations.start("cancel", query)
    assert await found(operator, "args.user:*hunter*") == 0
    assert await found(operator, 'args.user:"{*hunter2*}"') == 0
    assert await found(operator, "args.user:*ada*") == 2
    assert await found(operator, "args.user.name:ada args.n:2") == 1
    (one,) = (await operator.jobs("args.user:*ada*", limit=1)).jobs
    assert one.args["user"] == {"name": "ada", "password": MASK}


async def test_a_page_holds_as_many_jobs_as_match_as_they_are_shown(bench: Bench, operator: Operator) -> None:
    for n in range(30):
        password = "zebra" if n % 3 else "ada"
        await bench.store.enqueue([job(args={"user": {"name": "ada" if n % 2 else "bob", "password": password}})])
    seen: list[str] = []
    cursor = None
    while True:
        page = await operator.jobs("args.user:*ada*", limit=4, cursor=cursor)
        assert len(page.jobs) <= 4
        seen += [each.id for each in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 15


async def test_errors_from_before_the_rule_are_neither_shown_nor_found(bench: Bench, operator: Operator) -> None:
    (dead,) = await kill(bench.store, job(args=ARGS), message="hunter2 was refused")
    (cause,) = await operator.causes()
    assert cause.message == f"{MASK} was refused"
    assert (await operator.job(dead)).reason == f"{MASK} was refused"
    assert await found(operator, "state:dead error:hunter2") == 0
    assert await found(operator, "state:dead hunt*") == 0
    assert await found(operator, "state:dead error:refused") == 1
    await operator.desk.resolve(cause.cause)
    assert "hunter2" not in str(await operator.audit())
    await operator.redaction.remove("password", reason="a test")
    assert await found(operator, "state:dead error:hunter2") == 1


async def test_a_mask_that_comes_back_is_refused(bench: Bench, operator: Operator) -> None:
    (dead,) = await kill(bench.store, job(args=ARGS))
    which = [id_text(dead)]
    shown = (await operator.job(dead)).args
    for edit in ({"args": shown}, {"patch": {"user": shown["user"]}}, {"patch": {"n": f"x {MASK}"}}):
        with pytest.raises(InvalidArguments, match="stands for a hidden value"):
            await operator.retry(which, dry_run=True, **edit)
        with pytest.raises(InvalidArguments, match="stands for a hidden value"):
            await operator.operations.start("retry", which, **edit)
    report = await operator.retry(which, patch={"n": 5, "user": {"password": "new secret"}}, reason="mended")
    assert report.edits == ({"before": {"user": {"name": "ada", "password": MASK}, "n": 1}, "after": {"n": 5}},) or (
        "hunter2" not in str(report) and "new secret" not in str(report)
    )
    (retried,) = await claim(bench.store)
    assert msgspec.json.decode(retried.args) == {"user": {"password": "new secret"}, "n": 5}
    entry = next(each for each in await operator.audit() if each.kind == "job.retry")
    assert entry.data["patch"] == {"n": 5, "user": {"password": MASK}}
    assert entry.data["after"]["user"] == {"password": MASK}
    raw = await bench.store.read("audit")
    assert all(b"hunter2" not in each.data and b"new secret" not in each.data for each in raw)


async def test_schedules_hide_their_arguments_and_take_no_mask(bench: Bench, operator: Operator) -> None:
    schedules = Schedules(bench.store, "ada", handle=lambda answer, task: answer)
    made = await schedules.add(Every("1h"), "login", {"password": "hunter2", "n": 1}, meta={"password": "meta2"})
    assert (made.args, made.options["meta"]) == ({"password": MASK, "n": 1}, {"password": MASK})
    with pytest.raises(InvalidArguments, match="in place of a hidden value"):
        await schedules.change("login", args=made.args)


async def test_rules_are_added_listed_and_removed(bench: Bench, operator: Operator) -> None:
    await operator.redaction.add("args.body", task="mail.send", reason="letters")
    await operator.redaction.add("args.body", task="mail.send")
    rules = await operator.redaction.list()
    assert [(one.rule, one.task, one.added_by) for one in rules] == [
        ("password", None, "ada"),
        ("args.body", "mail.send", "ada"),
    ]
    with pytest.raises(UnknownName, match="there is no rule"):
        await operator.redaction.remove("args.bodi", task="mail.send")
    with pytest.raises(InvalidOption, match="cannot be read"):
        await operator.redaction.add("args..x")
    await operator.redaction.remove("args.body", task="mail.send")
    assert [one.rule for one in await operator.redaction.list()] == ["password"]
    kinds = [(each.kind, each.reason) for each in await operator.audit() if each.kind.startswith("redaction")]
    assert kinds == [
        ("redaction.add", None),
        ("redaction.add", "letters"),
        ("redaction.remove", None),
    ]


async def test_a_program_only_adds_rules(bench: Bench, operator: Operator) -> None:
    class Here:
        store = bench.store

    for said in (["token"], ["secret"], []):
        await PublishedRules(Here(), {}, parse_rules(said)).publish(bench.store)  # type: ignore[arg-type]
    assert [one.rule for one in await operator.redaction.list()] == ["password", "secret", "token"]


async def test_explaining_a_job_does_not_tell_its_secret(bench: Bench, operator: Operator) -> None:
    rule = GateRule("limit:of:hunter2", concurrency=1)
    first, second = (job(args=ARGS, keys=("of:hunter2",)) for _ in range(2))
    await put(bench.store, first, second, rules=(rule,))
    (running,) = await claim(bench.store)
    (ready,) = {first.id, second.id} - {running.id}
    for state in (State.ready, State.cancelled):
        said = await operator.explain(ready)
        assert said.state is state
        assert "hunter2" not in str(said.to_dict())
        assert MASK in said.text
        await operator.cancel([id_text(ready)], reason="because of hunter2")
