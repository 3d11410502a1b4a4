"""Two versions of the code side by side, as operators see them."""

from __future__ import annotations

import pytest

from limpet.client.registry import publish
from limpet.core.endings.refusal import place
from limpet.core.endings.transition import Failure, Refuse
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.core.tasks.task import PLAIN, TaskSpec, build_job
from limpet.ops import Operator
from limpet.ops.code import differing
from limpet.runtime import Parts, Worker, WorkerPlan, WorkerSettings
from limpet.stores.base import Store


def _send(to: str) -> None: ...


def _send_with_copy(to: str, cc: str) -> None: ...


SPECS = [TaskSpec.declare(fn, name="send") for fn in (_send, _send_with_copy)]


async def beat(store: Store, spec: TaskSpec, session: str, version: str = "") -> WorkerPlan:
    """A worker with this code, which claims nothing."""
    parts, settings = Parts(tasks={"send": spec}), WorkerSettings(capabilities=("eu",), code_version=version)
    plan = WorkerPlan(store=store, parts=parts, settings=settings, session=session)
    await store.beat(Beat(session, 60_000, plan.serves, Worker(plan).info()))
    return plan


async def test_two_signatures_of_a_task_are_told_with_their_code(operator: Operator, store: Store) -> None:
    await beat(store, SPECS[0], "old", "2024.1")
    assert differing(await store.sessions()) == []
    await beat(store, SPECS[1], "new", "2024.2")
    await beat(store, SPECS[1], "newer", "2024.2")
    (found,) = differing(await store.sessions())
    assert [(each.code_versions, each.workers) for each in found.variants] == [(("2024.1",), 1), (("2024.2",), 2)]
    (warning,) = [each for each in await operator.doctor() if each.code == "two_signatures"]
    assert warning.text.startswith(
        f"task send has 2 signatures: {SPECS[0].signature.fingerprint} in 1 worker (code 2024.1"
    )


async def test_a_worker_shows_its_code_and_when_it_started(store: Store) -> None:
    await beat(store, SPECS[0], "old")
    (worker,) = await Operator(store, "ada").workers()
    assert worker.capabilities == ("eu",)
    assert len(worker.code_version) == 16
    assert worker.started_at.tzinfo is not None


async def test_a_job_whose_code_has_gone_is_explained_and_runs_again_without_it(
    operator: Operator, store: Store
) -> None:
    old, new = await beat(store, SPECS[0], "old"), await beat(store, SPECS[1], "new")
    job, rules = build_job(SPECS[1], {"to": "a", "cc": "b"}, PLAIN, id=IdMaker().make(1))
    await store.enqueue([job], rules)
    (claimed,) = (await store.claim(ClaimRequest("old", old.serves, 1, 1, 1))).jobs
    await store.settle("old", 1, [await refused(store, claimed)])
    assert "capability" not in [reason.code for reason in (await operator.explain(id_text(job.id))).reasons]
    await store.leave("new")
    (reason,) = (await operator.explain(id_text(job.id))).reasons[:1]
    assert (reason.code, reason.data) == ("code", {"reason": "it has no parameter 'cc'"})
    await store.beat(Beat("any", 60_000, Serves(None, None, new.serves.capabilities)))
    (again,) = (await store.claim(ClaimRequest("any", new.serves, 1, 1, 1))).jobs
    assert again.lane.needs == tuple(each for each in new.serves.capabilities if each != "eu")
    await store.settle("any", 1, [])
    await operator.cancel([id_text(job.id)], force=True)
    await operator.rerun([id_text(job.id)])
    (rerun,) = (await store.claim(ClaimRequest("old", old.serves, 1, 1, 2))).jobs
    assert rerun.lane.needs == ()


async def refused(store: Store, claimed: Claimed) -> Refuse:
    why = Failure("permanent", "limpet.InvalidArguments", "it has no parameter 'cc'")
    refuse = Refuse(claimed.id, claimed.token, why, SPECS[0].signature.fingerprint)
    placed = place(claimed, refuse, (), await store.sessions())
    assert isinstance(placed, Refuse)
    return placed


async def test_a_renamed_task_is_reviewed_once(operator: Operator, store: Store) -> None:
    spec = TaskSpec.declare(_send, name="new", aliases=["old"], timeout=None)
    await publish(store, [spec, *spec.under_aliases()])
    found = [each.text for each in await operator.doctor() if "timeout" in each.text]
    assert [text.rpartition(": ")[2] for text in found] == ["new"]


@pytest.mark.parametrize("fn", [lambda to: None, lambda to, cc="": None, lambda to, *rest: None])
def test_signatures_differ_by_what_they_take_and_not_by_name(fn: object) -> None:
    assert callable(fn)
    mine = TaskSpec.declare(fn, name="send").signature.fingerprint
    assert mine not in {spec.signature.fingerprint for spec in SPECS}


def test_a_renamed_function_has_the_same_signature() -> None:
    def other(to: str) -> None: ...

    assert TaskSpec.declare(other, name="send").signature.fingerprint == SPECS[0].signature.fingerprint
