"""Text that no engine can keep is refused before anything changes, wherever a caller may pass text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from limpet.app import Limpet
from limpet.core.errors import LimpetError, UsageError
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.retention import SET
from limpet.core.jobs.state import State
from limpet.core.schedules.when import Every
from limpet.ops import LimitChange, Operator
from limpet.ops.agents import Agents
from limpet.ops.flows import Flows
from limpet.ops.schedules import Schedules
from limpet.ops.waits import Waits
from limpet.stores.base import Store
from tests.ops.making import job, kill, put

broken = pytest.mark.parametrize("bad", ["caf\udce9", "a\0b"], ids=["half a character", "NUL"])

# Of each method one call that would work, but for the text.
VALUES: dict[str, Any] = {
    "which": "state:dead",
    "queue": "mail",
    "key": "queue:mail",
    "change": LimitChange(concurrency=2),
    "breaker": "dep",
    "name": "queue:mail",
    "weight": 2,
    "keep": {"succeeded": "7d"},
}


def with_reason(kind: type) -> list[str]:
    """The methods that take a reason."""
    found = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return [name for name, method in found if "reason" in inspect.signature(method).parameters and name[0] != "_"]


def filled(method: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters.values()
    return {
        each.name: values[each.name]
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }


@broken
@pytest.mark.parametrize("name", with_reason(Operator))
async def test_a_reason(operator: Operator, store: Store, name: str, bad: str) -> None:
    await kill(store, job())
    await operator.trip("dep", new=True)
    await operator.set_limit("smtp", LimitChange(concurrency=1))
    await operator.set_retention("mail", {"succeeded": "1d"})

    async def state() -> tuple[Any, ...]:
        kept = [await store.controls(kind) for kind in ("weight", SET)]
        return await store.gates(), kept, await store.count(), await operator.audit()

    before = await state()
    method = getattr(operator, name)
    with pytest.raises(UsageError, match=r"reason=.*cannot be stored") as caught:
        await method(**filled(method, VALUES), reason=bad)
    assert "half ones" in caught.value.fix
    assert await state() == before


@broken
@pytest.mark.parametrize("name", with_reason(Schedules))
async def test_a_reason_about_a_schedule(store: Store, name: str, bad: str) -> None:
    schedules = Schedules(store, "ada", handle=lambda answer, task: answer)
    await schedules.add(Every("1h"), "report", name="hourly")
    before = (await store.controls("schedule"), await store.count(), await store.read("audit"))
    method = getattr(schedules, name)
    values = {"name": "hourly", "when": Every("1h"), "task": "report", "start": datetime(2026, 1, 1, tzinfo=UTC)}
    with pytest.raises(UsageError, match=r"reason=.*cannot be stored"):
        await method(**filled(method, values), reason=bad)
    assert (await store.controls("schedule"), await store.count(), await store.read("audit")) == before


@broken
async def test_a_reason_about_a_flow_or_of_a_handle(bad: str) -> None:
    async with Limpet("sqlite://") as app:

        @app.task
        async def work() -> None: ...

        flow = app.flow("report")
        node = flow.add(work.job())
        handle = await flow.enqueue()
        (one,) = await app.enqueue_many([work.job()])
        for call in (one.cancel(bad), handle.cancel(bad), handle.retry(reason=bad)):
            with pytest.raises(UsageError, match=r"reason=.*cannot be stored"):
                await call
        assert {(await one.status()).state, (await handle.status()).state} == {"ready", "running"}
        assert node is not None


@broken
async def test_who_acts(store: Store, bad: str) -> None:
    (id,) = await put(store, job())
    for made in (lambda: Operator(store, bad), lambda: Flows(store, bad)):
        with pytest.raises(UsageError, match="actor="):
            made()
    with pytest.raises(UsageError, match="actor="):
        await Waits(store, bad).signal(id, "paid")
    with pytest.raises(UsageError, match="agent="):
        await Agents(store).claim(bad, Serves())
    (view,) = await store.get([id])
    assert view is not None
    assert (view.state, view.notes) == (State.ready, ())


@broken
@pytest.mark.parametrize(
    "method", ["jobs", "cancel", "retry", "rerun", "discard", "job", "explain", "causes", "limits"]
)
async def test_what_is_asked_for(operator: Operator, method: str, bad: str) -> None:
    with pytest.raises(LimpetError):
        await getattr(operator, method)(f"task:{bad}")
