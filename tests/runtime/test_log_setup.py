"""A worker's process sets up the app's logging where the app has not, and leaves alone what the app has set up."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from limpet import JobFilter, job_fields
from limpet.core.jobs.ids import id_text
from limpet.runtime.log_setup import WORDY, LogSettings
from limpet.runtime.settings import Parts, WorkerPlan
from tests.runtime.running import Bench

BEGIN = """
    import asyncio, logging, logging.config, os, sys, threading, warnings
    from limpet.core.endings.failure import traceback_of
    from limpet.runtime.log import job_log, job_succeeded, worker_log
    from limpet.runtime.log_setup import AppLogging, LogSettings
    from tests.runtime.test_log_writer import JOB
    log = logging.getLogger("shop.tasks")
"""


def said(program: str) -> list[str]:
    """The lines that a program of ours leaves on stderr; its app is "imported" where the program says so."""
    command = [sys.executable, "-W", "default", "-c", dedent(BEGIN) + dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr.splitlines()


def events(program: str) -> list[dict[str, Any]]:
    """The same, where every line is a JSON object."""
    return [json.loads(line) for line in said(f"logs = AppLogging(LogSettings('json'))\n{dedent(program)}")]


def test_the_apps_lines_appear_from_info_on() -> None:
    program = "logs.complete(); log.info('charging %s', 'card', extra={'amount': 12}); log.debug('no'); log.error('e')"
    first, second = events(program)
    assert (first["level"], first["logger"], first["event"], first["amount"]) == (
        "info",
        "shop.tasks",
        "charging card",
        12,
    )
    assert second["event"] == "e"


def test_the_level_is_the_one_that_was_asked_for_unless_the_app_has_chosen() -> None:
    def told(level: str, app: str = "") -> list[str]:
        program = (
            f"logs = AppLogging(LogSettings('json', {level!r})){app};logs.complete();log.debug('d');log.warning('w')"
        )
        return [json.loads(line)["event"] for line in said(program)]

    assert told("DEBUG") == ["d", "w"]
    assert told("ERROR") == []
    assert told("ERROR", "; logging.getLogger().setLevel('DEBUG')") == ["d", "w"]


def test_libraries_that_log_each_request_with_its_url_stay_quiet_unless_the_app_asks_for_them() -> None:
    assert "httpx" in WORDY
    tell = "logs.complete(); logging.getLogger('httpx').info('GET https://api?key=secret')"
    assert events(tell) == []
    assert len(events(f"logging.getLogger('httpx').setLevel('INFO'); {tell}")) == 1


def test_handlers_of_the_app_keep_its_lines_to_themselves_and_get_the_job() -> None:
    program = """
        logs = AppLogging(LogSettings("text"))
        logging.basicConfig(format="THEIRS %(message)s %(job_id)s", level="INFO")
        logs.complete()
        log.info("charging")
        worker_log(logging.INFO, "worker started")
    """
    theirs, ours = said(program)
    assert theirs == "THEIRS charging None"
    assert ours.endswith("limpet.worker: worker started")


def test_a_configuration_that_disables_all_other_loggers_does_not_silence_the_worker() -> None:
    program = """
        config = {"version": 1, "handlers": {"h": {"class": "logging.StreamHandler"}}, "root": {"handlers": ["h"]}}
        logging.config.dictConfig(config)
        logs.complete()
        worker_log(logging.INFO, "worker started")
        logging.config.dictConfig(config | {"loggers": {"limpet": {"level": "INFO"}}})  # as code of a hook may
        logs.mend()
        job_log(logging.INFO, "job dead", JOB)
    """
    assert [line["event"] for line in events(program)] == ["worker started", "job dead"]


def test_without_the_set_up_nothing_is_touched() -> None:
    program = """
        AppLogging(LogSettings("json", app=False)).complete()
        hooks = sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__
        root, ours = logging.getLogger(), logging.getLogger("limpet")
        sys.stderr.write(repr((root.handlers, root.level, ours.handlers, ours.propagate, ours.level, hooks)))
    """
    assert said(program) == ["([], 30, [], True, 0, True)"]


def test_warnings_and_lines_of_the_import_and_what_no_code_catches_are_lines_of_the_log() -> None:
    program = """
        log.warning("at import")
        warnings.warn("old thing", stacklevel=1)
        logs.complete()
        warnings.warn("other thing", stacklevel=1)
        thread = threading.Thread(target=lambda: 1 / 0, name="mine")
        thread.start()
        thread.join()
        class Stubborn:
            def __del__(self):
                raise OSError("not now")
        Stubborn()
        asyncio.run(asyncio.sleep(0))
        raise ValueError("the last word")
    """
    lines = events(program)
    assert [(line["logger"], line["event"].splitlines()[0].rpartition(": ")[2]) for line in lines] == [
        ("shop.tasks", "at import"),
        ("py.warnings", "old thing"),
        ("py.warnings", "other thing"),
        ("limpet.worker", "uncaught exception"),
        ("limpet.worker", "uncaught exception"),
        ("limpet.worker", "uncaught exception"),
    ]
    assert lines[3]["thread"] == "mine"
    assert [line["error"] for line in lines[3:]] == [
        "ZeroDivisionError: division by zero",
        "OSError: not now",
        "ValueError: the last word",
    ]
    assert all("Traceback" in line["traceback"] for line in lines[3:])


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_line_that_cannot_be_formatted_is_named(style: str) -> None:
    program = (
        f"logs = AppLogging(LogSettings({style!r}));logs.complete();log.info('%d pages', 'three');log.info('next')"
    )
    broken, after = said(program)
    assert "cannot be formatted: %d pages" in broken
    assert "next" in after


def test_values_that_no_json_can_hold_are_written_out() -> None:
    (line,) = events("logs.complete(); log.info('x', extra={'half': '\\ud800', 'set': {1, 'a'}, 'job_id': 'theirs'})")
    assert line["half"] == "\\ud800"
    assert line["job_id"] == "theirs"  # outside of a job the name is free


def test_text_marks_every_line_that_is_not_the_first_of_its_record() -> None:
    program = r"""
        logs = AppLogging(LogSettings("text"))
        logs.complete()
        log.info("user said %s", "hi\n2026-11-19 10:00:00,000 INFO    1 limpet.worker: forged\x1b[2K")
        job_log(logging.ERROR, "job dead", JOB, error="a b", traceback="Traceback:\n  frame\nOSError: a")
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("no")
    """
    lines = said(program)
    begun = [line for line in lines if not line.startswith("  ")]
    assert [line.split(": ", 1)[1].split(" job_id")[0] for line in begun] == ["user said hi", "job dead", "no"]
    assert r"forged\x1b[2K" in lines[1]
    dead = lines.index(begun[1])
    assert lines[dead].endswith('error="a b"')
    assert lines[dead + 1 : dead + 4] == ["  Traceback:", "    frame", "  OSError: a"]
    assert lines[-1] == "  ZeroDivisionError: division by zero"


# -- the job


class Heard(logging.Handler):
    """Keeps the records of a logger, with the filter of users."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobFilter(outside="-"))
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def test_records_know_their_job_in_tasks_and_threads_and_what_those_start(bench: Bench) -> None:
    import asyncio

    log = logging.getLogger("shop.tests")
    heard = Heard()
    log.addHandler(heard)

    async def inner() -> None:
        log.warning("in a task of its own")

    async def outer() -> None:
        log.warning("async")
        await asyncio.gather(inner(), asyncio.to_thread(log.warning, "in a thread of its own"))

    def plain() -> None:
        log.warning("thread")
        assert set(job_fields()) == {"job_id", "task", "queue", "attempt"}

    log.warning("outside", extra={"task": "theirs"})
    ids = [await bench.put(bench.task(fn)) for fn in (outer, plain)]
    await bench.drain()
    log.removeHandler(heard)
    assert job_fields() == {}
    found = {
        record.getMessage(): (record.job_id, record.task, record.queue, record.attempt) for record in heard.records
    }
    first, second = (id_text(id) for id in ids)
    assert found == {
        "outside": ("-", "theirs", "-", "-"),
        "async": (first, "outer", "default", 1),
        "in a task of its own": (first, "outer", "default", 1),
        "in a thread of its own": (first, "outer", "default", 1),
        "thread": (second, "plain", "default", 1),
    }


def test_processes_of_someone_elses_program_are_not_set_up(bench: Bench) -> None:
    assert WorkerPlan(store=bench.store, parts=Parts(tasks={})).log == LogSettings(app=False)
