"""A real Prometheus reads what is exposed, and evaluates every rule and every expression of the dashboard."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet.core.jobs.minute import Tally
from limpet.core.text.place import Place
from limpet.ops.store_metrics import store_metrics
from limpet.runtime.child_messages import Counted
from limpet.runtime.exposition import Exposition
from limpet.runtime.metrics_book import MetricsBook
from limpet.runtime.metrics_server import exposed
from limpet.stores.sqlite import SqliteStore
from tests.deploy.observing import RULES, expressions
from tests.ops.making import job, kill, put
from tests.servers.process import free_port
from tests.servers.prometheus import program

pytestmark = pytest.mark.matrix("Prometheus is 94 MB, and its first scrape takes seconds")

TRACE = "0af7651916cd43dd8448eb211c80319c"
WITHIN_S = 60.0


def full_book() -> MetricsBook:
    book = MetricsBook()
    tally = Tally({"succeeded": 41, "retried": 1}, {38: 42}, {20: 42}, 21.0, 0.5)
    exemplar = ("mail", "send", TRACE, 0.5, 0.001)
    book.take("a", Counted(1, [("mail", "send", tally)], {}, {}, [100, 3, 0, 0, 1e8], [exemplar]))
    return book


def asked(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    return found["data"]


@contextmanager
def prometheus(folder: Path, target: Place) -> Iterator[int]:
    """A Prometheus that scrapes this target each second; its port."""
    port = free_port()
    (folder / "limpet.rules.yml").write_text(RULES.read_text())
    scrape = {"job_name": "worker", "static_configs": [{"targets": [str(target)]}]}
    shape = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": [scrape]}
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps({**shape, "rule_files": ["limpet.rules.yml"]}))
    words = ["--config.file", str(folder / "prometheus.yml"), "--storage.tsdb.path", str(folder / "data")]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"]
    process = subprocess.Popen([program("prometheus"), *words], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


async def until_scraped(port: int) -> list[Any]:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                found = await asyncio.to_thread(asked, port, "query", query="limpet_jobs_total")
                if found["result"]:
                    return list(found["result"])
            except OSError:
                pass  # it starts
            await asyncio.sleep(0.2)


async def test_a_scrape_is_read_with_its_exemplars_and_every_expression_can_be_evaluated(tmp_path: Path) -> None:
    async with exposed(Place("127.0.0.1", 0), full_book()) as place:
        assert place is not None
        with prometheus(tmp_path, place) as port:
            jobs = {each["metric"]["outcome"]: each["value"][1] for each in await until_scraped(port)}
            assert jobs == {"succeeded": "41", "retried": "1"}
            for expression in expressions():
                await asyncio.to_thread(asked, port, "query", query=expression)
            groups = (await asyncio.to_thread(asked, port, "rules"))["groups"]
            assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
            span = {"start": "0", "end": "9999999999"}
            seen = await asyncio.to_thread(
                asked, port, "query_exemplars", query="limpet_job_run_seconds_bucket", **span
            )
            assert {each["labels"]["trace_id"] for line in seen for each in line["exemplars"]} == {TRACE}
            targets = (await asyncio.to_thread(asked, port, "targets"))["activeTargets"]
            assert [target["health"] for target in targets] == ["up"]


def found_by_promtool(text: bytes) -> tuple[int, bytes]:
    run = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    return run.returncode, run.stdout + run.stderr


async def test_promtool_finds_no_fault_with_what_is_exposed() -> None:
    store = SqliteStore(None)
    await put(store, job())
    await kill(store, job("charge", queue="pay"))
    for values in (full_book().values(), await store_metrics(store)):
        text, _ = Exposition().text(values, "")
        assert found_by_promtool(text) == (0, b"")
    await store.close()


def test_promtool_runs_the_rules() -> None:
    for words in (
        ["check", "rules", "limpet.rules.yml"],
        ["test", "rules", "limpet.rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ):
        run = subprocess.run(
            [program("promtool"), *words], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
