"""How long finished jobs of single queues stay: what code, settings files and operators say, and who wins."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from limpet import InvalidOption, Limpet, Queue, State
from limpet.core.jobs.retention import DECLARED, SET, Walked, keep_of, said_in, walks
from limpet.core.jobs.view import Control
from limpet.core.settings import parse_settings
from limpet.ops import Operator
from limpet.runtime.janitor import Janitor
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.referral import Referral
from limpet.runtime.settings import Parts, WorkerPlan, WorkerSettings
from limpet.stores.base import Store
from tests.ops.making import job, kill

HOUR_MS = 3_600_000


async def said(store: Store) -> dict[str, dict[State, int | None]]:
    return said_in(await store.controls(DECLARED))


def app_of(queue: Queue | str, path: Path) -> Limpet:
    app = Limpet(f"sqlite:///{path}/jobs.db?sync=normal")

    @app.task(queue=queue)
    async def send() -> None: ...

    return app


async def test_code_declares_it_for_the_workers_of_all_programs(tmp_path: Path) -> None:
    async with app_of(Queue("mail", keep={"succeeded": "1h", "dead": None}), tmp_path) as app:
        await app.publish()
        assert await said(app.store) == {"mail": {State.succeeded: HOUR_MS, State.dead: None}}
        (control,) = await app.store.controls(DECLARED)
        await app.publish()
        assert (await app.store.controls(DECLARED)) == [control]  # nothing is written anew
    async with app_of(Queue("mail", 5), tmp_path) as app:
        await app.publish()
        assert await said(app.store) == {}


async def test_a_settings_file_wins_over_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "limpet.toml").write_text(
        '[retention.queues.mail]\nsucceeded = "2h"\n[retention.queues.other]\ndead = "forever"\n'
    )
    async with app_of(Queue("mail", keep={"succeeded": "1h", "cancelled": 60}), tmp_path) as app:
        await app.publish()
        assert await said(app.store) == {
            "mail": {State.succeeded: 2 * HOUR_MS, State.cancelled: 60_000},
            "other": {State.dead: None},
        }


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"queues": {"mail": {"succeded": 1}}}, "succeded"),
        ({"queues": {"mail": {"ready": 1}}}, "ready"),
        ({"queues": {"mail": {"dead": "soon"}}}, "soon"),
        ({"queues": {"mail": 5}}, r"\$.retention.queues"),
    ],
)
def test_a_settings_file_that_makes_no_sense_is_refused_by_name(table: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        parse_settings({"retention": table}, "limpet.toml")


def test_a_queue_says_how_long_by_the_ends_of_jobs() -> None:
    with pytest.raises(InvalidOption, match="running"):
        Queue("mail", keep={"running": 5})
    with pytest.raises(InvalidOption, match="names no states"):
        keep_of("7d", what="keep")  # type: ignore[arg-type]
    assert Queue("mail", keep={"dead": 60}) == Queue("mail", keep={"dead": "1m"}) != Queue("mail")


async def test_an_operator_wins_until_it_is_cleared(operator: Operator, store: Store) -> None:
    await store.put_control(Control(DECLARED, "mail", b'{"succeeded":1000,"dead":5000}'))
    await operator.set_retention("mail", {"succeeded": "forever"}, reason="audit")
    kept = await operator.set_retention("mail", {"cancelled": 2})
    assert [(one.queue, one.keep) for one in await operator.retention()] == [("mail", kept.keep)]
    shape = kept.to_dict()
    assert shape["keep"] == {"succeeded": None, "cancelled": 2.0, "dead": 5.0}
    assert shape["set_by"] == {"succeeded": "operator", "cancelled": "operator", "dead": "code"}
    assert (await operator.clear_retention("mail")).keep == {State.succeeded: 1, State.dead: 5}
    with pytest.raises(InvalidOption, match="has no retention of its own"):
        await operator.clear_retention("mail")
    with pytest.raises(InvalidOption, match="no end of a job"):
        await operator.set_retention("mail", {})
    assert [entry.kind for entry in await operator.audit()] == ["retention.set", "retention.set", "retention.clear"]


async def test_a_worker_prunes_by_what_is_said(operator: Operator, store: Store) -> None:
    dead = await kill(store, job(queue="mail"), job(queue="other"))
    await operator.set_retention("mail", {"dead": 0})
    rng = random.Random(1)
    swept = asyncio.Event()
    patient, plan = PatientStore(store, rng), WorkerPlan(store=store, parts=Parts(tasks={}))
    referral = Referral(plan, patient, lambda transition: None)
    janitor = Janitor(patient, WorkerSettings(sweep_ms=1, prune_ms=1), rng, referral, swept.set)
    living = asyncio.create_task(janitor.live(lambda: None))
    async with asyncio.timeout(60):
        while (await store.get(dead))[0] is not None:
            await swept.wait()
            swept.clear()
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    assert [view is None for view in await store.get(dead)] == [True, False]


def test_what_cannot_be_read_keeps_everything() -> None:
    found = said_in([Control(SET, "mail", b"?"), Control(SET, "other", b"{}")])
    assert found == {"mail": dict.fromkeys((State.succeeded, State.cancelled, State.dead))}


def test_the_common_walk_begins_anew_when_other_queues_are_left_to_it() -> None:
    one, other = (list(walks(State.dead, 5, queues))[-1] for queues in ({"a": 1}, {"a": 1, "b": None}))
    assert one.name != other.name
    assert (one.concerns("b"), other.concerns("b"), other.concerns("c")) == (True, False, True)
    assert [walk.queue for walk in walks(State.dead, None, {"a": 1, "b": None})] == ["a"]


def test_a_walk_begins_anew_once_a_day() -> None:
    begun = Walked.read(None, 1_000)
    went = begun.passed(900, b"x" * 16)
    assert Walked.read(went.written(), 86_400_000) == went
    assert Walked.read(went.written(), 86_401_000) == Walked(since_ms=86_401_000)
    assert Walked.read(went.written(), 999) == Walked(since_ms=999)  # the clock was set back
    assert Walked.read(b"?", 5) == Walked(since_ms=5)
