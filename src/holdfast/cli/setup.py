"""Commands that set things up: migrate, config, completion."""

from __future__ import annotations

import click

from holdfast.cli.terminal import Terminal
from holdfast.cli.words import command
from holdfast.stores.open import redacted


async def migrate_body(terminal: Terminal) -> None:
    """Create the store, or bring an old one up to date. Safe to repeat."""
    url = redacted(terminal.config.url.value)
    async with terminal.store(create=True) as store:
        name = store.features.name
    if terminal.machine:
        terminal.answer({"url": url, "engine": name, "state": "up to date"})
    else:
        terminal.text(f"{url} ({name}) is up to date")


async def config_body(terminal: Terminal) -> None:
    """Say which settings are in force, and which source won."""
    config = terminal.config
    shape = {
        "url": {"value": redacted(config.url.value), "source": config.url.source},
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
        setting = getattr(config, name)
        value = "(none)" if setting is None else setting.value if name == "app" else redacted(setting.value)
        terminal.text(f"{name:<10} {value}{'' if setting is None else f'  from {setting.source}'}")
    terminal.text(f"{'file':<10} {config.path or '(none)'}")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script: eval "$(holdfast completion bash)"."""
    from click.shell_completion import get_completion_class

    from holdfast.cli.root import holdfast

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    print(kind(holdfast, {}, "holdfast", "_HOLDFAST_COMPLETE").source())


migrate = command("migrate")(migrate_body)
config = command("config")(config_body)
