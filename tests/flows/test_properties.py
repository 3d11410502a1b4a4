"""Random flows on every engine beside a small model: who is released, cancelled, revived, run again, with what."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from limpet import Cancel, Dead, FlowHandle, InvalidOption, JobHandle, Limpet, ParentFailed, State
from tests.flows.model import FAILED, LIVE, Mode, Model, Outcome


@dataclass(frozen=True)
class Planned:
    """A node of a random flow; parents are those before it, by number."""

    parents: tuple[int, ...]
    mode: Mode
    passes: bool
    queue: int
    outcome: Outcome


def joined(*outcomes: Outcome) -> list[Planned]:
    """Parents in queues of their own, one that waits for all of them, and one for that."""
    parents = [Planned((), "cancel", True, queue, outcome) for queue, outcome in enumerate(outcomes)]
    both = Planned(tuple(range(len(outcomes))), "cancel", True, 0, "ok")
    return [*parents, both, Planned((len(outcomes),), "run", True, 0, "ok")]


@st.composite
def graphs(draw: st.DrawFn) -> list[Planned]:
    nodes: list[Planned] = []
    for number in range(draw(st.integers(1, 7))):
        many = min(number, draw(st.sampled_from([2, 1, 0, 3])))
        parents = draw(st.permutations(range(number)))[:many]
        nodes.append(
            Planned(
                tuple(parents),
                draw(st.sampled_from(["cancel", "cancel", "run", "wait"])),
                draw(st.booleans()),
                draw(st.integers(0, 1)),
                draw(st.sampled_from(["ok", "ok", "dead", "dead", "cancel"])),
            )
        )
    return nodes


WORK = st.tuples(st.just("work"), st.sampled_from([(0, 1), (0,), (1,)]))
RETRY = st.tuples(st.just("retry"), st.just(0))
STEPS = st.lists(
    st.one_of(
        WORK,
        WORK,
        RETRY,
        RETRY,
        st.tuples(st.just("cancel"), st.integers(0, 6)),
        st.tuples(st.just("cancel_all"), st.just(0)),
        st.tuples(st.just("run_again"), st.integers(0, 6)),
        st.tuples(st.just("mend"), st.integers(-1, 6)),
    ),
    min_size=1,
    max_size=7,
)


class Stage:
    """Plays a flow on an engine and in the model, step by step."""

    _numbers = count(1)

    def __init__(self, app: Limpet) -> None:
        self.app = app
        self.model = Model()
        self.ran: dict[str, int] = {}
        self.seen: dict[str, list[str]] = {}

    async def step(self, name: str, inputs: list[Any]) -> str:
        """What a job does: as it is told."""
        self.ran[name] = self.ran.get(name, 0) + 1
        self.seen[name] = [FAILED if isinstance(value, ParentFailed) else value for value in inputs]
        match self.model.outcomes[name]:
            case "dead":
                raise Dead("told to die")
            case "cancel":
                raise Cancel("told to stop")
        return f"{name}:{self.ran[name]}"

    async def play(self, nodes: list[Planned], steps: list[tuple[str, Any]]) -> None:
        handle, jobs = await self._enqueue(nodes)
        await self._compare(handle)
        for what, which in [*steps, ("work", (0, 1))]:
            await getattr(self, f"_{what}")(handle, jobs, which)
            await self._compare(handle)
        await handle.cancel()  # nothing of this flow is left for the next one

    async def _enqueue(self, nodes: list[Planned]) -> tuple[FlowHandle, list[str]]:
        number = next(self._numbers)
        self.queues = tuple(f"flow{number}-{queue}" for queue in (0, 1))
        task = self.app.tasks["step"]
        flow = self.app.flow("random")
        handles: list[JobHandle[Any]] = []
        for at, node in enumerate(nodes):
            parents = [handles[parent] for parent in node.parents]
            asked = task.options(queue=self.queues[node.queue], if_parent_fails=node.mode, after=parents)
            name = f"{number}n{at}"
            handles.append(flow.add(asked.job(name, parents if node.passes else []), name=name))
            names = [f"{number}n{parent}" for parent in node.parents]
            self.model.add(name, node.queue, node.mode, node.passes, names, node.outcome)
        return await flow.enqueue(), list(self.model.nodes)

    async def _work(self, handle: FlowHandle, names: list[str], queues: tuple[int, ...]) -> None:
        await self.app.work(queues=[self.queues[queue] for queue in queues], until_empty=True)
        self.model.work(queues)

    async def _cancel(self, handle: FlowHandle, names: list[str], at: int) -> None:
        name = names[at % len(names)]
        (node,) = (node for node in (await handle.status()).nodes if node.node == name)
        assert await self.app.get(node.id).cancel("by hand") == self.model.cancel(name, "by hand")

    async def _cancel_all(self, handle: FlowHandle, names: list[str], _: int) -> None:
        assert await handle.cancel("all of it") == self.model.cancel_all("all of it")

    async def _retry(self, handle: FlowHandle, names: list[str], _: int) -> None:
        assert await handle.retry() == self.model.retry()

    async def _run_again(self, handle: FlowHandle, names: list[str], at: int) -> None:
        name = names[at % len(names)]
        if self.model.may_run_again(name):
            assert await handle.retry(name) == self.model.run_again(name)
        else:
            with pytest.raises(InvalidOption, match=r"run .* again as well"):
                await handle.retry(name)

    async def _mend(self, handle: FlowHandle, names: list[str], at: int) -> None:
        for name in names if at < 0 else [names[at % len(names)]]:
            self.model.outcomes[name] = "ok"

    async def _compare(self, handle: FlowHandle) -> None:
        status = await handle.status()
        assert {node.node: node.state.value for node in status.nodes} == self.model.states()
        assert status.state == self.model.state
        assert status.done == sum(node.state not in LIVE for node in self.model.nodes.values())
        assert self.seen == self.model.seen
        for node in status.nodes:
            should = self.model.nodes[node.node]
            assert node.run == should.run
            assert node.after == tuple(parent.name for parent in should.parents)
            if should.state is State.succeeded:
                assert await self.app.get(node.id).result() == should.value
            elif should.state is State.cancelled:
                assert (node.reason or "").startswith(should.reason)
            elif should.state is State.dead:
                assert node.reason == "told to die"


@pytest.fixture
def stages(app: Limpet) -> list[Stage]:
    """Where the app's task looks for the stage that is played on: the last one."""
    stages: list[Stage] = []

    @app.task(name="step", retry=1)
    async def step(name: str, inputs: list[Any]) -> str:
        return await stages[-1].step(name, inputs)

    return stages


@pytest.mark.timeout(600)  # a failure takes minutes to shrink
@settings(
    max_examples=settings().max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(nodes=graphs(), steps=STEPS)
@example(nodes=joined("dead", "cancel"), steps=[("work", (0,)), ("work", (1,)), ("retry", 0)])
@example(
    nodes=joined("dead", "dead"), steps=[("work", (0, 1)), ("mend", 0), ("retry", 0), ("work", (0,)), ("retry", 0)]
)
@example(nodes=joined("dead", "ok"), steps=[("work", (0,)), ("run_again", 0), ("work", (0,)), ("run_again", 1)])
def test_a_flow_is_where_the_model_has_it_after_every_step(
    app: Limpet, stages: list[Stage], nodes: list[Planned], steps: list[tuple[str, Any]]
) -> None:
    stages[:] = [Stage(app)]
    app.run(stages[0].play(nodes, steps))
