"""A job belongs to a tenant: `group` is a parallel flow, a process group or a task group, and never whose job it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import click

from limpet.cli.root import limpet
from limpet.client.options import CallOptions, ScheduleOptions
from limpet.core.errors import QueueFull
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Lane
from limpet.core.jobs.options import Options
from limpet.core.tasks.declare import TaskOptions
from limpet.core.tasks.queue import Queue
from limpet.core.tasks.task import TaskSpec
from limpet.core.tasks.template import PLACES
from limpet.ops.query import TEXT_FIELDS
from limpet.runtime.context import JobContext
from tests.arch.test_words import DOCS, said
from tests.arch.tree import PACKAGE, ROOT, modules, named

GROUP: Final = re.compile(r"group", re.IGNORECASE)
# What else the word means, as messages and pages say it.
OTHERS: Final = re.compile(
    r"""(?:Base)?ExceptionGroup|TaskGroup|\btask\ groups?\b|\bgroup\ of\ errors\b
    | process_group|\bprocess\ group|\bgroups?\ of\ (?:job\ )?process(?:es)?|\bits\ (?:whole\ )?group\b|\bjob's\ group\b
    | \bgroup\ of\ them\b|\|\ group\ \|\ states\b|\bgrouped\ by\ what\ killed\ them\b|\bdev\ group\b
    | GroupHandle|`Group`|\bgroup\(|`group`,\ `chord`|[Cc]hains?,\ (?:a\ )?groups?\b|\ba\ group,\ then\ `last`""",
    re.VERBOSE,
)
# Pages where it is a parallel flow, a task group or a process group throughout, or a word of a record.
ABOUT_OTHERS: Final = frozenset(
    {
        "docs/how-to/flows.md",
        "docs/how-to/timeouts-and-cancelling.md",
        "docs/explanation/guarantees.md",
        "docs/adr/0033-a-lease-ends-for-its-holder-first.md",
        "docs/adr/0037-a-soft-timeout-is-raised-in-the-handlers-own-frame.md",
        "docs/glossary.md",
        "docs/reference/redis-keys.md",
    }
)
# Where a flow says what is wrong with a group.
OF_FLOWS: Final = frozenset({"src/limpet/client/work.py", "src/limpet/client/flow.py"})


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, by the words that call them."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            yield from commands(inner, f"{name} {below}")


def test_no_option_field_or_query_word_is_a_group() -> None:
    public = {
        "options of a task": list(TaskOptions.__annotations__),
        "options of a job": list(CallOptions.__annotations__),
        "options of a schedule": list(ScheduleOptions.__annotations__),
        "options": list(Options.__annotations__),
        "a task": list(TaskSpec.__annotations__),
        "a queue": list(Queue.__annotations__),
        "a lane": list(Lane.__annotations__),
        "a rule": list(GateRule.__annotations__),
        "a full queue": vars(QueueFull("full")),
        "the job that runs": dir(JobContext),
        "queries": TEXT_FIELDS,
        "templates": PLACES,
    }
    assert [f"{where}: {name}" for where, names in public.items() for name in names if GROUP.search(name)] == []


def test_no_command_and_no_flag_is_a_group() -> None:
    found = [name for name, _ in commands(limpet, "limpet") if GROUP.search(name)]
    for name, command in commands(limpet, "limpet"):
        found += [f"{name} {word}" for param in command.params for word in param.opts if GROUP.search(word)]
    assert found == []


def test_no_message_calls_a_tenant_a_group() -> None:
    found = [
        f"{named(path)}:{line}: {text}"
        for path in modules()
        if path.is_relative_to(PACKAGE) and named(path) not in OF_FLOWS
        for line, text in said(ast.parse(path.read_text()))
        if GROUP.search(OTHERS.sub("", text))
    ]
    assert found == []


def test_no_page_calls_a_tenant_a_group() -> None:
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    found = [
        f"{named(page)}:{number}: {line}"
        for page in pages
        if named(page) not in ABOUT_OTHERS
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if GROUP.search(OTHERS.sub("", line))
    ]
    assert found == []
