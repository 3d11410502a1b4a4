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
    from limpet.core.records.job import JobRecord

_Args = dict[str, Any] | None


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

            async def refuse_unfit(**edit: Any) -> None:
                await operator.retry(whole, dry_run=True, **edit)

            args, patch = await edited(await operator.job(view.id), refuse_unfit)

        async def act(**how: Any) -> Any:
            return await operator.retry(whole, reason=reason, delay_ms=delay, args=args, patch=patch, **how)

        return await run_action(terminal, act, [id], dry_run=dry_run, yes=yes)


async def edited(job: JobRecord, refuse_unfit: Callable[..., Awaitable[None]]) -> tuple[_Args, _Args]:
    """What a person makes of the arguments, as new ones or as a patch; a mistake opens the editor again."""
    import msgspec

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "this is not a terminal, so no editor can be opened",
            fix="""pass them: --patch '{"to": "a@b.c"}' or --args @FILE""",
        )
    shown = msgspec.json.format(msgspec.json.encode(job.args), indent=2).decode() + "\n"
    text: str | None = shown
    while True:
        text = click.edit(text, extension=".json", require_save=True)
        if text is None or text.strip() == shown.strip():
            raise UsageError(
                "the arguments were not changed, so the job was not run",
                fix=f"limpet retry {job.id} runs it as it is",
            )
        try:
            args = msgspec.json.decode(text, type=dict[str, Any])
            edit = _difference(job.args, args)
            await refuse_unfit(args=edit[0], patch=edit[1])
        except msgspec.MsgspecError as error:
            wrong = f"this is not a JSON object ({error})"
        except UsageError as error:
            wrong = error.message
        else:
            return edit
        click.confirm(f"{clean(wrong)}; edit it again?", default=True, abort=True, err=True)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[_Args, _Args]:
    """New arguments; or a patch of those that were changed, which leaves alone what was shown with a mask."""
    if before.keys() - after.keys():
        return after, None
    return None, {name: value for name, value in after.items() if name not in before or before[name] != value}


edit = command("edit")(edit_body)
