"""Decides which command a command line means; a command's own module is loaded only when it is called."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from limpet.cli.commands import MODULES, SECTIONS, listed
from limpet.cli.logs import say_line, wants_json_log
from limpet.core.errors import LimpetError, UsageError
from limpet.core.text.storable import is_storable

ENDING: Final = "limpet COMMAND --help shows options and examples."


class Root(click.Group):
    """The `limpet` command: loads subcommands lazily and suggests the nearest name for a wrong one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in listed() if _present(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = MODULES.get(cmd_name)
        if module is None or not _present(cmd_name):
            return None
        command = getattr(import_module(f"limpet.cli.{module}"), cmd_name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in MODULES:
            from limpet.core.text.foreign_words import COMMANDS

            meant = f"; here it is: {COMMANDS[args[0]]}" if args[0] in COMMANDS else suggestion(args[0], [*MODULES])
            raise click.UsageError(f"there is no command {args[0]!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All of it on one screen of 80 by 40."""
        formatter.write(f"Usage: {ctx.command_path} COMMAND [OPTIONS] [ARGS]\n\n{inspect.cleandoc(self.help or '')}\n")
        widest = max(len(names) for lines in SECTIONS.values() for names in lines)
        for section, lines in SECTIONS.items():
            formatter.write("\n")
            label = section
            for names, text in lines.items():
                if _present(names):
                    formatter.write(f"{label:<9} {names:<{widest}}  {text}\n")
                    label = ""
        formatter.write(f"\n{ENDING}\n")


def suggestion(word: str, known: Sequence[str]) -> str:
    """The end of an error message: the nearest known word, if one is near."""
    from limpet.core.tasks.naming import nearest

    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def _present(name: str) -> bool:
    """The demo is a module of its own that a slim installation may lack."""
    return name != "demo" or importlib.util.find_spec("limpet.cli.demo") is not None


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="limpet", message="%(prog)s %(version)s")
def limpet() -> None:
    """A task queue that does not let go of a job: SQLite, Redis or PostgreSQL.
    Every command takes --url (or LIMPET_URL), --namespace and --json."""


def run(words: Sequence[str]) -> int:
    """Run the command and answer its exit code: the only place where errors become codes."""
    try:
        _refuse_broken_text(words)
        answer = limpet.main(args=list(words), prog_name="limpet", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = click.NoSuchOption(error.option_name, possibilities=_close_option(error), ctx=error.ctx)
        if _is_for_programs(words):
            _refuse("usage", error.format_message(), _help_of(error), words)
        else:
            error.show(file=sys.stderr)
        return error.exit_code
    except click.Abort as stop:
        interrupted = isinstance(stop.__cause__, KeyboardInterrupt)  # how click passes a Ctrl-C on
        if _is_for_programs(words):
            _refuse("interrupted" if interrupted else "aborted", "the command was not finished", "", words)
        else:  # an interrupted command may have done half of its work
            print("interrupted" if interrupted else "aborted: nothing was changed", file=sys.stderr)
        return 130 if interrupted else 1
    except LimpetError as error:
        from limpet.ops.codes import meaning_of

        _refuse(error.code, error.message, error.fix, words)
        return meaning_of(error).exit
    return answer if isinstance(answer, int) else 0


def _refuse_broken_text(words: Sequence[str]) -> None:
    """Bytes that are no text come in as half characters, which no store can keep and no name can hold."""
    for word in words:
        if not is_storable(word):
            raise UsageError(
                f"{word!r} is not UTF-8 text", fix="check the terminal's locale, or the program that calls"
            )


def _asks_for_json(words: Sequence[str]) -> bool:
    return "--json" in words or "--jsonl" in words


def _is_for_programs(words: Sequence[str]) -> bool:
    """Whether programs read what this command line answers."""
    return _asks_for_json(words) or wants_json_log(words)


def _refuse(code: str, message: str, fix: str, words: Sequence[str]) -> None:
    from limpet.cli.terminal import say_error

    if wants_json_log(words) and not _asks_for_json(words):
        say_line("critical", message, code=code, fix=fix)
    else:
        say_error(code, message, fix, as_json=_asks_for_json(words))


def _close_option(error: click.NoSuchOption) -> list[str]:
    """The option that was most likely meant: by the one rule of all suggestions, and not by that of click."""
    from limpet.core.tasks.naming import nearest

    command = None if error.ctx is None else error.ctx.command
    known = [name for option in (command.params if command else ()) for name in (*option.opts, *option.secondary_opts)]
    close = nearest(error.option_name.lstrip("-"), [name.lstrip("-") for name in known if name.startswith("--")])
    return [] if close is None else [f"--{close}"]


def _help_of(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "" if context is None else f"{context.command_path} --help says what it takes"
