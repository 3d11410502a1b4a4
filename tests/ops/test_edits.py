"""Dead jobs that run again with other arguments: what their task cannot take is refused, and the log keeps both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from limpet.client.registry import publish
from limpet.core.errors import InvalidArguments, PayloadTooLarge
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.tasks.task import TaskSpec
from limpet.ops import Operator
from limpet.stores.base import Store
from tests.ops.making import job, kill, put


async def send(to: str, count: int = 1) -> None: ...


@pytest.fixture
async def published(store: Store) -> None:
    await publish(store, [TaskSpec.declare(send, name="send", max_payload_bytes=100)])


async def args_of(store: Store, *ids: bytes) -> list[Any]:
    return [None if view is None else msgspec.json.decode(view.args) for view in await store.get(ids)]


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"patch": {"cuont": 2}}, "did you mean 'count'"),
        ({"patch": {"count": "many"}}, 'count is "many", not a whole number'),
        ({"args": {"count": 2}}, "to is missing"),
    ],
)
async def test_arguments_that_the_task_cannot_take_are_refused(
    operator: Operator, store: Store, edit: dict[str, Any], says: str
) -> None:
    (dead,) = await kill(store, job(args={"to": "a"}))
    for dry_run in (True, False):
        with pytest.raises(InvalidArguments, match=says):
            await operator.retry([id_text(dead)], dry_run=dry_run, **edit)
    (view,) = await store.get([dead])
    assert view is not None
    assert view.state is State.dead


@pytest.mark.usefixtures("published")
async def test_of_many_jobs_none_is_touched_when_one_cannot_take_them(operator: Operator, store: Store) -> None:
    fit, unfit = await kill(store, job(args={"to": "a"}), job(args={"adress": "b"}))
    with pytest.raises(InvalidArguments, match=id_text(unfit)):
        await operator.retry("queue:mail", patch={"count": 2})
    assert await args_of(store, fit, unfit) == [{"to": "a"}, {"adress": "b"}]
    assert await operator.audit() == []


@pytest.mark.usefixtures("published")
async def test_an_argument_that_stays_is_the_tasks_own_business(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job(args={"to": "a", "count": "5"}))
    assert (await operator.retry([id_text(dead)], patch={"to": "b"})).done == 1


@pytest.mark.usefixtures("published")
async def test_arguments_over_the_tasks_size_are_refused(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job(args={"to": "a"}))
    with pytest.raises(PayloadTooLarge):
        await operator.retry([id_text(dead)], patch={"to": "a" * 100})


@pytest.mark.usefixtures("published")
async def test_a_dry_run_shows_the_job_as_it_will_be(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job(args={"to": "a", "count": 1}))
    report = await operator.retry("queue:mail", patch={"to": "b"}, dry_run=True)
    assert [job.args for job in report.samples] == [{"to": "b", "count": 1}]
    assert report.edits == ({"before": {"to": "a"}, "after": {"to": "b"}},)
    assert report.notes == ()
    assert await args_of(store, dead) == [{"to": "a", "count": 1}]


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        ({"patch": {"to": "b"}}, {"to": "a"}, {"to": "b"}),
        ({"patch": {"new": None}}, {}, {"new": None}),
        ({"args": {"count": 1}}, {"to": "a"}, {}),
    ],
)
async def test_the_log_keeps_old_and_new_arguments(
    operator: Operator, store: Store, edit: dict[str, Any], before: Any, after: Any
) -> None:
    (dead,) = await kill(store, job(args={"to": "a", "count": 1}))
    await operator.retry([id_text(dead)], reason="moved", **edit)
    (entry,) = await operator.audit()
    facts = entry.data
    assert (facts["before"], facts["after"]) == (before, after)


async def test_a_task_that_nobody_published_is_not_checked_and_that_is_said(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job("novel", args={"to": "a"}))
    report = await operator.retry([id_text(dead)], patch={"anything": 1})
    assert report.done == 1
    assert report.notes == ("the arguments of novel are not checked: no worker has published it",)


@pytest.mark.usefixtures("published")
async def test_the_result_of_a_parent_stays_where_it_stands(operator: Operator, store: Store) -> None:
    (parent,) = await put(store, job("first"))
    (dead,) = await kill(store, job(args={"to": {"$job": 0}}))
    assert (await operator.retry([id_text(dead)], patch={"count": 2})).done == 1
    assert await args_of(store, dead) == [{"to": {"$job": 0}, "count": 2}]
    assert parent
