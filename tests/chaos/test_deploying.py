"""A rolling deployment on every engine: real workers of two versions, producers of both, and kills in between."""

from __future__ import annotations

from functools import partial

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.ops.code import differing
from limpet.stores.asking import attempts_of
from tests.chaos.conftest import on_every_engine
from tests.chaos.deploying_jobs import before, today
from tests.chaos.field import Field, WorkerProcess

JOBS = 30  # of each kind, in each of the two waves


@on_every_engine
@pytest.mark.timeout(900)
async def test_in_a_rolling_deployment_none_is_dead_and_claims_are_counted(field: Field) -> None:
    old = [hire(field, "before") for _ in range(2)]
    await staffed(field, *old)
    early = await ordered(field, versions=1)
    new = [hire(field, "today") for _ in range(2)]
    await staffed(field, *new)
    assert [each.task for each in differing(await field.store.sessions())] == ["order.ship"]

    ids = [*early, *await ordered(field, versions=2)]
    await field.until("jobs have run", lambda: len(field.trace()) > JOBS)
    for fallen, version in ((old[0], "before"), (new[0], "today")):
        fallen.signal(9)
        await staffed(field, hire(field, version))
    await field.finished(len(ids))

    views = await field.views(ids)
    assert {view.state for view in views} == {State.succeeded}
    assert len(views) == len(ids)
    for view in views:
        outcomes = [each.outcome for each in await attempts_of(field.store, view.id)]
        ends = [*outcomes, "succeeded"] if outcomes[-1:] != ["succeeded"] else outcomes
        assert ends.count("refused") <= (1 if view.lane.task == "order.ship" else 0), outcomes
        cut_off = ends.count("lost") + ends.count("released")  # by the kills: the rest of a fallen worker hands back
        assert len(ends) - cut_off <= 2, outcomes  # claims: the one that was refused, and the one that ran
    ran = {line[1]: line[0] for line in field.trace()}
    assert {ran[id_text(view.id)] for view in views if b"country" in view.args} == {"today"}
    assert {ran[id_text(view.id)] for view in views if view.lane.task == "mail.send"} == {"mail.send"}


async def ordered(field: Field, versions: int) -> list[bytes]:
    """One wave of orders, from producers of one version or of both."""
    ids = []
    for number in range(JOBS):
        ids += await field.put("order.ship", {"order": number}, app=before)
        ids += await field.put("mail.send", {"to": "a@b.c"}, app=before)
        if versions == 2:
            ids += await field.put("order.ship", {"order": number, "country": "nl"}, app=today)
            ids += await field.put("mail.deliver", {"to": "a@b.c"}, app=today)
    return ids


def hire(field: Field, version: str) -> WorkerProcess:
    return field.start(app=f"tests.chaos.deploying_jobs:{version}", concurrency=4, refer_ms=500)


async def staffed(field: Field, *workers: WorkerProcess) -> None:
    """All of these live."""
    for worker in workers:
        await field.until("it lives", partial(field.lives, worker))
