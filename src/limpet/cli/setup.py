"""Commands that set things up: migrate, config, completion."""

from __future__ import annotations

from typing import Any

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Exemplified, command
from limpet.core.errors import UsageError
from limpet.stores.base import Migrates, Plan
from limpet.stores.open import located, missing_file, open_store, redacted


@command("migrate")
@click.option("--plan", is_flag=True, help="Say what would be done, and change nothing (PostgreSQL).")
@click.option("--sql", is_flag=True, help="Print the SQL instead, to be run by hand (PostgreSQL).")
async def migrate(terminal: Terminal, plan: bool, sql: bool) -> None:
    """Create the store, or bring an old one up to date. Safe to repeat, and while workers run."""
    url, new = terminal.place, missing_file(terminal.config.url.value)
    store = open_store(terminal.openable(create=True), terminal.config.namespace.value)
    name = store.features.name
    try:
        if not isinstance(store, Migrates):
            if plan or sql:
                raise UsageError(f"{url} ({name}) upgrades itself when it is opened", fix="remove --plan and --sql")
            await store.open()
            terminal.say_made(new)
            _migrated(terminal, url, name, (), new)
        elif sql:
            _printed(terminal, url, name, await store.plan())
        elif plan:
            _planned(terminal, url, name, await store.plan())
        else:
            before = await store.plan()
            done = await store.migrate(terminal.say)
            if before.steps and not done:
                terminal.say("another process has migrated it meanwhile")
            await store.open()
            _migrated(terminal, url, name, done)
    finally:
        await store.close()


def _printed(terminal: Terminal, url: str, name: str, plan: Plan) -> None:
    if terminal.machine:
        terminal.answer({**_shape(url, name, plan), "sql": plan.script})
    else:
        print(plan.script, end="")


def _shape(url: str, name: str, plan: Plan) -> dict[str, object]:
    state = "outdated" if plan.steps else "up to date"
    return {
        "url": url,
        "engine": name,
        "state": state,
        "at": plan.at,
        "needs": plan.needs,
        "pending": plan.steps,
    }


def _planned(terminal: Terminal, url: str, name: str, plan: Plan) -> None:
    if terminal.machine:
        terminal.answer(_shape(url, name, plan))
    elif plan.steps:
        there = f"is at migration {plan.at}" if plan.at else "holds nothing yet"
        terminal.text(f"{url} ({name}) {there}; this release needs {plan.needs}")
        terminal.text(f"migrate would apply: {', '.join(plan.steps)} (--sql prints what they do)")
    else:
        terminal.text(f"{url} ({name}) is up to date")


def _migrated(terminal: Terminal, url: str, name: str, done: tuple[str, ...], made: str | None = None) -> None:
    if terminal.machine:
        terminal.answer({"url": url, "engine": name, "state": "up to date", "applied": done, "made": made})
    else:
        terminal.text(f"{url} ({name}) is up to date")


async def config_body(terminal: Terminal) -> None:
    """Say which settings are in force, and which source won."""
    config = terminal.config
    shape: dict[str, Any] = {
        "url": {"value": located(config.url.value), "source": config.url.source},
        "namespace": {"value": config.namespace.value, "source": config.namespace.source},
        "outbox": None
        if config.outbox is None
        else {"value": redacted(config.outbox.value), "source": config.outbox.source},
        "app": None if config.app is None else {"value": config.app.value, "source": config.app.source},
        "file": None if config.path is None else str(config.path),
    }
    if terminal.machine:
        terminal.answer(shape)
        return
    for name in ("url", "namespace", "outbox", "app"):
        setting = shape[name]
        words = "(none)" if setting is None else f"{setting['value']}  from {setting['source']}"
        terminal.text(f"{name:<10} {words}")
    terminal.text(f"{'file':<10} {shape['file'] or '(none)'}")


@click.command("completion", cls=Exemplified)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script: eval "$(limpet completion bash)"."""
    from click.shell_completion import get_completion_class

    from limpet.cli.root import limpet

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    print(kind(limpet, {}, "limpet", "_LIMPET_COMPLETE").source())


config = command("config")(config_body)
