"""Flows by every way: shared jobs, processes and threads, callers' own transactions, on every engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from limpet import JobNotFound, Limpet, State, chain, chord
from limpet.stores.sqlite.library import library
from tests.flows import shop
from tests.flows.conftest import ENGINES, app_on


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Limpet]:
    """The shop on each engine."""
    other = app_on(request.param, tmp_path)
    shop.app.rebind(other.url, namespace=other.namespace)
    yield shop.app
    shop.app.run(shop.app.close())


def test_a_node_whose_job_is_there_already_is_that_job(app: Limpet) -> None:
    async def whole() -> None:
        keyed = shop.load.options(unique="logo")
        there = await keyed.enqueue("logo")
        flow = app.flow("shared")
        logo = flow.add(keyed.job("logo"), name="logo")
        again = flow.add(keyed.job("logo"), name="again")
        photo = flow.add(shop.load.job("photo"), name="photo")
        flow.add(shop.album.job([photo, logo, again]), name="album")
        handle = await flow.enqueue()
        assert (logo.id, logo.existing, photo.existing) == (there.id, True, False)
        album = next(node for node in (await handle.status()).nodes if node.node == "album")
        assert album.after == ("photo",)
        await app.work(until_empty=True)
        assert await handle.result() == "photo 100, logo 100, logo 100"
        assert await logo.result() == shop.Image("logo", 100)
        assert await flow.enqueue() == handle

    app.run(whole())


def test_an_end_that_was_there_before_is_asked_by_its_own_handle(app: Limpet) -> None:
    async def whole() -> None:
        there = await shop.load.options(unique="logo", delay=60).enqueue("logo")
        flow = app.flow("shared")
        photo = flow.add(shop.load.job("photo"), name="photo")
        logo = flow.add(shop.load.options(unique="logo").job("logo"), after=photo, name="logo")
        handle = await flow.enqueue()
        await app.work(until_empty=True)
        for ask in (handle.result, handle.results):
            with pytest.raises(JobNotFound, match=r"an end of flow .* is not among its jobs"):
                await ask()
        assert (logo.id, (await logo.status()).state) == (there.id, State.scheduled)

    app.run(whole())


def test_two_nodes_with_one_key_are_one_job(app: Limpet) -> None:
    async def whole() -> None:
        keyed = shop.load.options(unique="logo")
        job = await chord([keyed.job("logo"), keyed.job("other")], shop.album.job()).enqueue()
        await app.work(until_empty=True)
        assert await job.result() == "logo 100, logo 100"

    app.run(whole())


def test_what_runs_again_keeps_to_the_job_that_stands_for_a_parent(app: Limpet) -> None:
    async def whole() -> None:
        keyed = shop.load.options(unique="logo", unique_for=3600)
        await keyed.enqueue("logo")
        job = await chord([keyed.job("logo"), shop.load.job("photo")], shop.album.job()).enqueue()
        await app.work(until_empty=True)
        for node, run in (("album", 2), ("load-2", 3)):
            await job.flow.retry(node)
            await app.work(until_empty=True)
            assert await job.flow.result() == "logo 100, photo 100"
            assert {node.node: node.run for node in (await job.flow.status()).nodes}["album"] == run

    app.run(whole())


def test_results_reach_handlers_in_processes_and_threads(app: Limpet) -> None:
    async def whole() -> None:
        scaled = [chain(shop.load.job(name), shop.scale.job(width)) for name, width in (("a", 1), ("b", 2))]
        job = await chord(scaled, shop.album.job()).enqueue()
        await app.work(until_empty=True)
        assert await job.result() == "a 1, b 2"

    app.run(whole())


def test_a_handler_knows_its_flow(app: Limpet) -> None:
    async def whole() -> None:
        lone, job = await shop.where.enqueue(), await chain(shop.where.job(), shop.where.job()).enqueue()
        await app.work(until_empty=True)
        assert await lone.result() is None
        assert await job.result() == job.flow.id

    app.run(whole())


@contextlib.contextmanager
def connected(app: Limpet, folder: Path) -> Iterator[Any]:
    """A connection of the user's own to the database that the store is in."""
    if app.url.startswith("sqlite"):
        with contextlib.closing(library.connect(f"{folder}/jobs.db")) as conn:
            yield conn
    else:
        with psycopg.connect(app.url) as conn:
            yield conn


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_a_flow_is_there_when_the_callers_transaction_commits(app: Limpet, tmp_path: Path) -> None:
    keyed = shop.load.options(unique="logo")
    app.run(keyed.enqueue("logo"))
    app.run(app.work(until_empty=True))  # succeeded, and its key is free again
    there = app.run(keyed.enqueue("logo"))
    with connected(app, tmp_path) as conn:
        gone = chord([shop.load.job(str(n)) for n in range(700)], shop.album.job()).enqueue_sync(conn=conn)
        conn.rollback()
        flow = app.flow("kept")
        logo = flow.add(keyed.job("logo"))
        flow.add(shop.album.job([logo, shop.load.job("photo")]))
        handle = flow.enqueue_sync(conn=conn)
        conn.commit()
    with pytest.raises(JobNotFound):
        app.run(gone.status())
    app.run(app.work(until_empty=True))
    assert logo.id == there.id
    assert app.run(handle.result(60)) == "logo 100, photo 100"
