"""Code without an event loop asks about its jobs with the twins of a handle's questions."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import JobCancelled, JobHandle, Limpet, ResultTimeout, Task, WrongContext

TWINS = {"enqueue_sync", "status_sync", "result_sync", "cancel_sync", "explain_sync"}


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Limpet]:
    """An app of a program without an event loop."""
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    yield app
    app.run(app.close())


def test_a_program_without_a_loop_asks_for_status_result_and_reasons(plain: Limpet) -> None:
    @plain.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    job = double.enqueue_sync(21)
    assert job.status_sync().state == "ready"
    assert "no worker is alive" in str(job.explain_sync())
    with pytest.raises(ResultTimeout):
        job.result_sync(timeout=0)
    plain.run(plain.work(until_empty=True))
    assert job.result_sync(timeout=60) == 42
    assert (job.status_sync().state, job.cancel_sync("too late")) == ("succeeded", "finished")


def test_a_program_without_a_loop_cancels(plain: Limpet) -> None:
    @plain.task(name="t")
    def t() -> None: ...

    job = t.enqueue_sync()
    assert job.cancel_sync("not needed") == "cancelled"
    with pytest.raises(JobCancelled, match="not needed"):
        job.result_sync()
    assert t.enqueue_sync().cancel_sync(force=True) == "cancelled"


def test_a_sync_task_asks_about_another_job(plain: Limpet) -> None:
    @plain.task(name="inner")
    def inner() -> str:
        return "from inner"

    @plain.task(name="outer")
    def outer() -> str:
        job = inner.enqueue_sync()
        assert job.status_sync().task == "inner"
        return job.result_sync(timeout=60)

    job = outer.enqueue_sync()
    plain.run(plain.work(until_empty=True))
    assert job.result_sync(timeout=60) == "from inner"


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda job: job.status_sync(), "await .status()"),
        (lambda job: job.result_sync(5), "await .result()"),
        (lambda job: job.cancel_sync("why"), "await .cancel()"),
        (lambda job: job.explain_sync(), "await .explain()"),
    ],
)
async def test_inside_a_loop_a_twin_refuses_and_says_what_to_write(
    app: Limpet, ask: Callable[[JobHandle[Any]], object], instead: str
) -> None:
    job = await app.enqueue("t", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WrongContext) as caught:
            ask(job)
        gc.collect()
    assert caught.value.fix == instead


def test_a_job_has_these_twins_and_no_others() -> None:
    assert {name for kind in (JobHandle, Task) for name in vars(kind) if name.endswith("_sync")} == TWINS
