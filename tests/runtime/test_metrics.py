"""What a worker exposes: its children's counts in one place, each once, and what becomes of them when one is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from limpet import Limpet
from limpet.core.errors import UsageError
from limpet.core.jobs.meta import trace_of
from limpet.core.jobs.minute import BOUNDS_S, Tally
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts
from limpet.core.metrics.family import FAMILIES, LE, MOST, STORE, WORKER, cumulated, le_of
from limpet.core.text.place import Place
from limpet.ops import Operator
from limpet.runtime.child_messages import Counted
from limpet.runtime.exposition import Exposition
from limpet.runtime.metrics_book import MetricsBook
from limpet.runtime.metrics_server import exposed
from limpet.runtime.settings import WorkerSettings
from limpet.runtime.supervisor import Supervisor, SupervisorSettings

WITHIN_S = 60.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
HERE = Place("127.0.0.1", 0)
Scrape = dict[str, dict[tuple[str, ...], float]]


def report(number: int, *lines: tuple[str, str, Tally]) -> Counted:
    return Counted(number, list(lines), {"limpet_leases_recovered": 2}, {"slow": 1}, [10, 3, 1, 0, 1e6], [])


def values(book: MetricsBook) -> Scrape:
    """By name and labels, which come in the order of the alphabet."""
    found: Scrape = {}
    text, _ = Exposition().text(book.values(), "")
    for metric in plain(text.decode()):
        for each in metric.samples:
            found.setdefault(each.name, {})[tuple(each.labels.values())] = each.value
    return found


async def get(place: Place, path: str = "/metrics", accept: str = "text/plain") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nAccept: {accept}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), body.decode()


def test_a_report_that_comes_twice_counts_once_and_a_dead_childs_counts_stay() -> None:
    book = MetricsBook()
    for session, number in (("a", 1), ("a", 1), ("b", 1), ("a", 2)):
        book.take(session, report(number, ("mail", "send", Tally({"succeeded": 5}, {30: 5}, {20: 5}, 1.5, 0.5))))
    before = values(book)
    assert before["limpet_jobs_total"] == {("succeeded", "mail", "send"): 15}
    assert before["limpet_job_run_seconds_count"] == {("mail", "send"): 15}
    assert before["limpet_job_run_seconds_sum"] == {("mail", "send"): 4.5}
    assert (before["limpet_slots"][()], before["limpet_worker_processes"][()]) == (20, 2)
    assert before["limpet_loop_blocks_total"] == {("slow",): 3}
    book.gone("a")
    after = values(book)
    assert after["limpet_jobs_total"] == before["limpet_jobs_total"]
    assert (after["limpet_slots"][()], after["limpet_leases_recovered_total"][()]) == (10, 6)


def test_labels_are_bounded_and_no_line_ever_shrinks() -> None:
    book = MetricsBook()
    lines = [("mail", f"task{number}", Tally({"succeeded": 1})) for number in range(3 * MOST)]
    book.take("a", report(1, *lines))
    book.take("a", report(2, *reversed(lines)))
    found = values(book)["limpet_jobs_total"]
    assert len(found) == MOST + 1
    assert sum(found.values()) == 6 * MOST
    assert found["succeeded", "other", "other"] == 4 * MOST


def test_buckets_are_those_that_are_counted() -> None:
    counts = cumulated({0: 1, LE[0][0]: 2, LE[0][0] + 1: 4, len(BOUNDS_S): 8})
    assert (counts[0], counts[1], counts[-2], counts[-1]) == (3, 7, 7, 15)
    assert le_of(LE[3][1]) == 3
    assert le_of(1e9) == len(LE)


@pytest.mark.parametrize(
    ("meta", "trace"),
    [
        (f'{{"traceparent":"00-{TRACE}-b7ad6b7169203331-01"}}', TRACE),
        ('{"traceparent":"00-' + "0" * 32 + '-b7ad6b7169203331-01"}', None),
        ('{"traceparent":"nonsense"}', None),
        ('{"request":"r1"}', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_the_trace_of_a_job_is_read_from_its_meta(meta: str, trace: str | None) -> None:
    assert trace_of(meta.encode()) == trace


def test_workers_and_servers_have_no_metric_in_common() -> None:
    assert len(FAMILIES) == len(WORKER) + len(STORE)
    assert {family.name for family in FAMILIES.values() if not family.name.startswith("limpet_")} == set()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError) as refused:
        Exposition()
    assert "[metrics]" in refused.value.fix


class Scraped:
    """A real worker of two processes on a file, and the port on which it exposes what they do."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'jobs.db'}?sync=normal"
        worker = WorkerSettings(ttl_ms=5_000, beat_ms=500)
        here = (str(Path.cwd()),)
        settings = SupervisorSettings(
            app_ref="tests.runtime.counted_jobs:app", path=here, url=self.url, processes=2, worker=worker
        )
        self.supervisor = Supervisor(settings)
        self.place = HERE

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MetricsBook]:
        self.supervisor.book = book = MetricsBook()
        async with exposed(HERE, book) as place:
            assert place is not None
            self.place = place
            running = asyncio.create_task(self.supervisor.run())
            try:
                yield book
            finally:
                self.supervisor.stop()
                await running

    async def until(self, holds: Callable[[Scrape], bool]) -> None:
        """Scrape until that holds."""
        found: Scrape = {}
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    status, text = await get(self.place)
                    assert status == 200
                    found = {}
                    for metric in plain(text):
                        for each in metric.samples:
                            found.setdefault(each.name, {})[tuple(each.labels.values())] = each.value
                    if holds(found):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(found) from None


async def counts_when_done(app: Limpet, jobs: int) -> Counts:
    async with asyncio.timeout(WITHIN_S):
        while True:
            counts = await app.store.count()
            if counts.total(State.succeeded) + counts.total(State.dead) == jobs:
                return counts
            await asyncio.sleep(0.05)


async def kept(app: Limpet) -> int:
    """The jobs that have succeeded, by the counts that beats brought into the store."""
    return (await Operator(app.store, "ada").series("1h")).total.whole.ended.get("succeeded", 0)


def ended(found: Scrape, outcome: str) -> float:
    return sum(count for labels, count in found.get("limpet_jobs_total", {}).items() if labels[0] == outcome)


async def test_a_scrape_adds_up_to_the_stores_own_counts_and_a_kill_costs_it_alone(tmp_path: Path) -> None:
    scraped = Scraped(tmp_path)
    async with Limpet(scraped.url) as app, scraped.running() as book:
        for _ in range(30):
            await asyncio.gather(*(app.enqueue("fine", queue="mail") for _ in range(10)))
        for _ in range(5):
            await app.enqueue("bad", queue="pay")
        await app.enqueue("fine", queue="mail", meta={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
        counts = await counts_when_done(app, 306)
        assert (counts.succeeded, counts.total(State.dead)) == (301, 5)
        await scraped.until(lambda found: ended(found, "succeeded") == 301 and ended(found, "dead") == 5)
        _, text = await get(scraped.place, accept="application/openmetrics-text; version=1.0.0")
        families = {family.name: family for family in open_metrics(text)}  # type: ignore[no-untyped-call]
        measured = families["limpet_job_run_seconds"].samples
        assert sum(each.value for each in measured if each.name.endswith("_count")) == 306
        traces = {each.exemplar.labels["trace_id"] for each in measured if each.exemplar is not None}
        assert traces == {TRACE}
        assert (await get(scraped.place, "/"))[0] == 404

        async with asyncio.timeout(WITHIN_S):
            while await kept(app) < 301:  # noqa: ASYNC110  # a beat brings it
                await asyncio.sleep(0.05)

        # Under load one of the two processes is killed: of its last second the scrape knows nothing, the store all.
        await asyncio.gather(*(app.enqueue("fine", queue="mail") for _ in range(200)))
        os.kill(scraped.supervisor.pids()[0], signal.SIGKILL)
        counts = await counts_when_done(app, 506)
        assert counts.succeeded == 501
        await scraped.until(lambda found: found["limpet_worker_process_restarts_total"][()] == 1)
        await scraped.until(lambda found: found["limpet_worker_processes"][()] == 2)
    exposed_at_last = ended(values(book), "succeeded")
    assert 301 <= exposed_at_last <= 501 + counts.lost
    async with Limpet(scraped.url) as app:
        assert 301 <= await kept(app) <= 501 + counts.lost, "what had come with a beat is kept, whoever was killed"
