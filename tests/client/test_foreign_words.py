"""Words of other task queues: each is answered with the word of this one, and none of them is really there."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping
from typing import Any

import pytest

from limpet import (
    InvalidArguments,
    InvalidOption,
    InvalidTask,
    JobContext,
    JobDead,
    JobHandle,
    JobRecord,
    Limpet,
    UnknownAttribute,
    current_job,
)
from limpet.cli.commands import MODULES
from limpet.client.hooks import OPTIONS as HOOK_OPTIONS
from limpet.client.task import Task
from limpet.core.jobs.options import CALL_OPTIONS
from limpet.core.tasks.declare import TASK_OPTIONS
from limpet.core.text.foreign_words import APP, COMMANDS, CONTEXT, JOB, OPTIONS, TASK

DOTTED = re.compile(r"(?<![\w/])\.([a-z_]+)")  # .enqueue(...), and not limpet.toml


def made() -> tuple[Limpet, Any]:
    app = Limpet("sqlite://")

    @app.task(name="email.send")
    def send_email(to: str) -> None: ...

    return app, send_email


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("delay", "a task has no .delay (await it: .enqueue(...); without an event loop: .enqueue_sync(...))"),
        ("apply_async", ".options(delay=60"),
        ("s", "chain("),
        ("si", ".job(...)"),
        ("send", ".enqueue_sync(...)"),
        ("delay_on_commit", ".options(conn=connection)"),
        ("send_with_options", ".options("),
        ("schedule", "@app.schedule"),
        ("enqueue_in", "delay=60"),
        ("retry", "raise RetryLater(30)"),
        ("on_failure", "@app.on_dead above def alert(job)"),
        ("on_success", "@app.on_finished(states=['succeeded'])"),
    ],
)
def test_a_task_answers_words_of_others_with_ours(name: str, says: str) -> None:
    _, task = made()
    with pytest.raises(UnknownAttribute) as caught:
        getattr(task, name)
    assert says in str(caught.value)


def test_an_app_a_handle_and_a_running_job_answer_too() -> None:
    app, task = made()
    untyped: Any = app
    with pytest.raises(UnknownAttribute, match=r"a Limpet app has no \.send_task \(await app\.enqueue\('email\.send'"):
        untyped.send_task("email.send")
    with pytest.raises(UnknownAttribute, match=r"include=\["):
        untyped.autodiscover_tasks()
    with pytest.raises(UnknownAttribute, match=r"@app\.on_dead"):
        untyped.task_failure.connect(print)
    job = task.enqueue_sync("a@b.c")
    for name, says in {"get": "result_sync", "ready": "status_sync", "revoke": "cancel", "state": "status"}.items():
        with pytest.raises(UnknownAttribute, match=says):
            getattr(job, name)

    @app.task
    def asks() -> str:
        running: Any = current_job()
        with pytest.raises(UnknownAttribute, match=r"raise RetryLater\(30\)") as caught:
            running.retry()
        return str(caught.value)

    asked = asks.enqueue_sync()
    app.run(app.work(until_empty=True))
    assert app.run(asked.result(5)).startswith("a running job has no .retry")
    app.run(app.close())


@pytest.mark.parametrize(("kind", "words"), [(Task, TASK), (Limpet, APP), (JobHandle, JOB), (JobContext, CONTEXT)])
def test_no_such_word_is_an_attribute(kind: type, words: Mapping[str, str]) -> None:
    """What a class learns later leaves the table; and no tool may take the table for attributes."""
    assert [name for name in words if name in dir(kind)] == []
    assert [name for name in words if inspect.getattr_static(kind, name, None) is not None] == []


def test_tools_see_what_they_always_saw() -> None:
    app, task = made()
    assert not hasattr(task, "delay")
    assert not hasattr(app, "conf")
    assert getattr(task, "delay", None) is None
    with pytest.raises(AttributeError, match="'SyncTask' object has no attribute 'dealy'"):
        task.dealy("a@b.c")
    assert inspect.signature(task).parameters.keys() == {"to"}
    assert copy.copy(task).spec is task.spec
    handle = app.get("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b")
    assert copy.copy(handle) == handle


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("bind", "current_job() is the running job"),
        ("max_retries", "5 retries are attempts=6"),
        ("autoretry_for", "classify="),
        ("countdown", ".options(delay=60)"),
        ("eta", ".options(at=...)"),
        ("rate_limit", 'Limit("key", rate="10/m")'),
        ("ignore_result", "leave it out"),
        ("acks_late", "max_lost=1"),
        ("soft_time_limit", "timeout=30"),
        ("link_error", "@app.on_dead above def alert(job)"),
        ("on_failure", "@app.on_dead(tasks=["),
        ("on_success", "@app.on_finished(states=['succeeded'])"),
        ("actor_name", 'name="email.send"'),
        ("delay", ".options(delay=...).enqueue(...)"),
        ("qeue", "did you mean 'queue'"),
    ],
)
def test_an_option_of_others_is_refused_with_ours(option: str, says: str) -> None:
    untyped: Any = made()[0]
    with pytest.raises(InvalidOption, match=f"@task has no option '{option}'") as caught:
        untyped.task(**{option: 3})(lambda: None)
    assert says in caught.value.fix


def test_a_task_that_still_has_a_parameter_self_is_refused_with_ours() -> None:
    app, _ = made()

    def send(self: Any, to: str) -> None: ...

    with pytest.raises(InvalidTask, match=r"'.*send' has a parameter self, which nothing fills") as caught:
        app.task(send)
    assert "current_job() is the running job" in caught.value.fix


def test_options_of_calls_and_of_tasks_are_told_apart() -> None:
    _, task = made()
    for option, says in {
        "countdown": "delay=60",
        "breaker": "@app.task(breaker=...)",
        "job_id": "id=...",
        "prioritty": "did you mean 'priority'",
    }.items():
        with pytest.raises(InvalidOption) as caught:
            task.options(**{option: 60})
        assert says in caught.value.fix
    for argument, says in {
        "countdown": "delay=60",
        "priority": "options come first: .options(priority=...)",
        "too": "did you mean 'to'",
    }.items():
        with pytest.raises(InvalidArguments) as refused:
            task.enqueue_sync("a@b.c", **{argument: 60})
        assert says in refused.value.fix


async def test_a_function_in_the_place_of_a_name_is_refused_with_the_way() -> None:
    """As in RQ and arq, where a queue gets the function."""
    app, task = made()
    with pytest.raises(InvalidOption, match=r"got <task email.send> \(await send_email.enqueue"):
        await app.enqueue(task, {"to": "a@b.c"})
    await app.close()


def test_every_answer_names_what_is_there() -> None:
    tables = (TASK, APP, JOB, CONTEXT, OPTIONS, COMMANDS)
    said = "\n".join(answer for table in tables for answer in table.values())
    for kind, pattern in ((Limpet, r"\bapp\.(\w+)"), (Task, r"(?:task|send_email|fetch)\.(\w+)")):
        assert [name for name in re.findall(pattern, said) if not hasattr(kind, name)] == []
    named = {
        name for table in (TASK, JOB, CONTEXT, OPTIONS) for text in table.values() for name in DOTTED.findall(text)
    }
    assert len(named) > 15
    things = (Task, JobHandle, JobContext, JobRecord, JobDead(""))
    assert [name for name in sorted(named) if not any(hasattr(thing, name) for thing in things)] == []
    options = set(re.findall(r"\b(\w+)=", said)) - {"to", "include", "rate", "concurrency", "usd", "tz", "states"}
    assert sorted(options - TASK_OPTIONS - CALL_OPTIONS - HOOK_OPTIONS - {"attempts", "base", "factor", "cap"}) == []
    commands = set(re.findall(r"\blimpet (?!import)([a-z]+)", said))
    assert sorted(commands - MODULES.keys()) == []


def test_no_option_of_ours_is_among_those_of_others() -> None:
    assert sorted(OPTIONS.keys() & (TASK_OPTIONS | CALL_OPTIONS)) == []
