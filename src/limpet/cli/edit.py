"""The command that edits the arguments of a dead job, in an editor or by flags, and runs it again."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from limpet.cli.bulk import run_action
from limpet.cli.terminal import Terminal, clean
from limpet.cli.words import bulk_options, command, duration, json_object
from limpet.core.errors import UsageError
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State

if TYPE_CHECKING:
    from limpet.core.jobs.view import JobView


@click.argument("id")
@click.option("--args", type=json_object, help="Replace all arguments: a JSON object, @FILE or -.")
@click.option("--patch", type=json_object, help="Change some arguments: a JSON object, @FILE or -.")
@click.option("--delay", type=duration, default=0, help="Run it not before this time has passed (5m).")
@bulk_options
async def edit_body(
    terminal: Terminal,
    id: str,
    args: dict[str, Any] | None,
    patch: dict[str, Any] | None,
    delay: int,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> int:
    """Edit the arguments of a dead job and run it again.

    Without --args and --patch they open as JSON in $VISUAL or $EDITOR, again after a mistake. What its task cannot
    take is refused, and the job stays as it was. The audit log keeps the old and the new arguments.
    """
    from limpet.ops.select import view_of

    async with terminal.operator() as operator:
        view = await view_of(operator.store, await operator.resolve(id))
        if view.state is not State.dead:
            raise UsageError(
                f"job {id_text(view.id)} is {view.state.value}, and only dead jobs are edited",
                fix="limpet rerun makes a new job of a finished one; limpet enqueue takes other arguments",
            )
        whole = [id_text(view.id)]
        if args is None and patch is None:

            async def refuse_unfit(args: dict[str, Any]) -> None:
                await operator.retry(whole, args=args, dry_run=True)

            args = await edited(view, refuse_unfit)

        async def act(**how: Any) -> Any:
            return await operator.retry(whole, reason=reason, delay_ms=delay, args=args, patch=patch, **how)

        return await run_action(terminal, act, [id], dry_run=dry_run, yes=yes)


async def edited(view: JobView, refuse_unfit: Callable[[dict[str, Any]], Awaitable[None]]) -> dict[str, Any]:
    """What a person makes of the arguments; a mistake opens the editor again, with what was typed."""
    import msgspec

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "this is not a terminal, so no editor can be opened",
            fix="""pass them: --patch '{"to": "a@b.c"}' or --args @FILE""",
        )
    shown = msgspec.json.format(view.args, indent=2).decode() + "\n"
    text: str | None = shown
    while True:
        text = click.edit(text, extension=".json", require_save=True)
        if text is None or text.strip() == shown.strip():
            raise UsageError(
                "the arguments were not changed, so the job was not run",
                fix=f"limpet retry {id_text(view.id)} runs it as it is",
            )
        try:
            args = msgspec.json.decode(text, type=dict[str, Any])
            await refuse_unfit(args)
        except msgspec.MsgspecError as error:
            wrong = f"this is not a JSON object ({error})"
        except UsageError as error:
            wrong = error.message
        else:
            return args
        click.confirm(f"{clean(wrong)}; edit it again?", default=True, abort=True, err=True)


edit = command("edit")(edit_body)
