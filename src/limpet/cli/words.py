"""Decides how commands are declared: the options that all share, queries as arguments, and values such as 5m."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Final

import click

from limpet.cli.terminal import Terminal
from limpet.core.errors import LimpetError
from limpet.core.jobs.state import STATES
from limpet.core.text.duration import to_ms
from limpet.stores.sending import tell_refusals_at_once

if TYPE_CHECKING:
    from limpet.core.text.place import Place
    from limpet.ops.names import Kind
    from limpet.stores.base import Store

Body = Callable[Concatenate[Terminal, ...], Awaitable[int | None]]

_CONDITION: Final = re.compile(r"[-!]?[A-Za-z_][\w.]*[:<>=]")
_NEGATED: Final = re.compile(r"-([A-Za-z_][\w.]*[:<>=].*)", re.DOTALL)


class Exemplified(click.Command):
    """A command whose help ends with two examples; `--watch` may stand alone in it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--watch" in args:
            from limpet.cli.watch import with_interval

            args = with_interval(args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from limpet.cli.examples import examples_of

        if examples := examples_of(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"  {example}\n")  # as it is typed: a wrapped line cannot be copied


class Asking(Exemplified):
    """A command whose arguments may be conditions: `-task:noop` is one, not a row of short options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [_NEGATED.sub(r"!\1", word) if _NEGATED.fullmatch(word) else word for word in args]
        )


class Noun(Exemplified, click.Group):
    """A group of commands about one thing; suggests the nearest name for a wrong one."""

    alone = ""  # what it does without the name of a command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from limpet.cli.root import suggestion

        if args and args[0] not in self.commands:
            words = f"there is no command '{self.name} {args[0]}'{suggestion(args[0], list(self.commands))}"
            if isinstance(self.commands.get("list"), Asking):
                words += f"; to search: limpet {self.name} list {args[0]}"
            raise click.UsageError(words, ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]  # as they were declared

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.alone:
            formatter.write(f"  {self.alone}\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(200)) for name, each in self.commands.items()])


class Listing(Noun):
    """A group that lists when it is called alone."""

    alone = "Called alone it lists; then the options are those of `list`."

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        asks = not first or first.startswith("-") or _CONDITION.match(first)
        if asks and first not in ctx.help_option_names:
            args = ["list", *args]
        return super().parse_args(ctx, args)


class Showing(Noun):
    """A group that shows what it is called with, unless that is one of its commands."""

    alone = "With an ID alone it shows; then the options are those of `show`."

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


def duration(text: str | int) -> int:
    """Milliseconds of a duration such as 30, 250ms, 5m or 1h30m."""
    try:
        return to_ms(text, what="the duration")
    except LimpetError as error:
        raise click.BadParameter(f"{text!r} is not a duration: write 30, 250ms, 5m or 1h30m") from error


def place(text: str | int) -> Place:
    """An address and a port, or a port alone on this machine."""
    from limpet.core.text.place import place_of

    try:
        return place_of(text, what="the place")
    except LimpetError as error:
        raise click.BadParameter(f"{text!r}: {error.fix}") from error


def json_object(text: str) -> dict[str, Any]:
    """One JSON object, given in place, as @FILE, or as - for standard input."""
    found = read_json(text)
    if not isinstance(found, dict):
        raise click.BadParameter(f'expected one JSON object such as {{"to": "a@b.c"}}, not {text!r}')
    return found


def json_value(text: str) -> bytes:
    """Any JSON value, given in place, as @FILE, or as - for standard input; kept as encoded bytes."""
    import msgspec

    return msgspec.json.encode(read_json(text))


def read_json(word: str) -> Any:
    """The JSON value that a word on the command line means."""
    import msgspec

    try:
        if word == "-":
            return msgspec.json.decode(sys.stdin.read())
        if word.startswith("@"):
            with open(word[1:], encoding="utf-8") as file:
                return msgspec.json.decode(file.read())
        return msgspec.json.decode(word)
    except OSError as error:
        raise click.BadParameter(f"{word[1:]!r} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise click.BadParameter(f"not JSON: {error}; quote it for the shell, or give @FILE") from error


def amounts(words: Sequence[str], flag: str) -> dict[str, int | float]:
    """Amounts by unit, given as UNIT=AMOUNT again and again; a bare number is of the plain unit."""
    found: dict[str, int | float] = {}
    for word in words:
        unit, equals, number = word.rpartition("=")
        unit = unit if equals else "cost"
        try:
            amount: int | float = int(number) if number.isdecimal() else float(number)
        except ValueError:
            raise click.BadParameter(f"{flag} {word!r} is not an amount: write tokens=1834 or usd=0.02") from None
        if unit in found:
            raise click.BadParameter(f"{flag} {unit}= is given twice: add it up")
        found[unit] = amount
    return found


def pairs(words: Sequence[str], flag: str, example: str) -> dict[str, str]:
    """What is given as UNIT=TEXT again and again."""
    found: dict[str, str] = {}
    for word in words:
        unit, equals, text = word.partition("=")
        if not equals or unit in found:
            raise click.BadParameter(
                f"{flag} {word!r} {'is given twice' if equals else 'names no unit'}: write {example}"
            )
        found[unit] = text
    return found


def command(
    name: str, *, lists: bool = False, watch: bool = True, cls: type[click.Command] = Exemplified
) -> Callable[[Body], click.Command]:
    """Declare a command with the options that all commands share; its body is async and gets a Terminal.

    What lists takes --jsonl, and --watch unless its answer stays the same.
    """

    def declare(body: Body) -> click.Command:
        @functools.wraps(body)
        def call(
            url: str | None,
            namespace: str | None,
            json: bool,
            jsonl: bool = False,
            every_ms: int | None = None,
            looks: int | None = None,
            **given: Any,
        ) -> int:
            # Of each look one line: with --jsonl, too, a list is one object then.
            line = every_ms is not None and jsonl
            terminal = Terminal(url, namespace, json=json or line, jsonl=jsonl and not line)

            async def whole() -> int | None:
                tell_refusals_at_once()  # a person waits; what runs on and on tries again by itself
                if every_ms is None:
                    return await body(terminal, **given)
                from limpet.cli.watch import watched

                terminal.watches = True
                return await watched(terminal, lambda: body(terminal, **given), every_ms, looks)

            try:
                with _quiet():
                    answer = asyncio.run(whole()) or 0
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader has seen enough (`limpet jobs | head`); Python must not complain at exit either.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            except LimpetError as error:
                if not terminal.json_log:
                    raise
                from limpet.ops.codes import meaning_of

                terminal.refuse(error.code, error.message, error.fix)
                return meaning_of(error).exit
            return answer

        made: Callable[..., Any] = call
        if lists and watch:
            from limpet.cli.watch import watch_options

            made = watch_options(made)
        if lists:
            made = click.option("--jsonl", is_flag=True, help="One JSON object per line.")(made)
        made = click.option("--json", is_flag=True, help="One JSON object on stdout.")(made)
        made = click.option("--namespace", metavar="NAME", help="Which namespace (LIMPET_NAMESPACE).")(made)
        made = click.option("--url", metavar="URL", help="Which store (LIMPET_URL).")(made)
        return click.command(name, cls=cls)(made)

    return declare


@contextmanager
def _quiet() -> Iterator[None]:
    """An app that sets up logging does not hear of an engine's trouble here: the command's own error says it."""
    logger = logging.getLogger("limpet")
    before = logger.propagate
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before


def since_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that asks for the newest part of a list; `text` says what is compared."""
    return click.option("--since", metavar="TIME", help=f"{text} since then: 1h (ago), or 2026-11-19T08:00Z.")


async def instant(store: Store, since: str | None) -> int:
    """The instant that --since names; 0 without it."""
    from limpet.ops.since import since_ms

    return 0 if since is None else await since_ms(store, since)


def bulk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of an action on many jobs."""
    for option in (
        click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Count and show three, change nothing."),
    ):
        function = option(function)
    return function


def _complete_names(kind: Kind) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        async def ask() -> list[str]:
            from limpet.ops.names import known_names

            tell_refusals_at_once()
            terminal = Terminal(ctx.params.get("url"), ctx.params.get("namespace"))
            async with terminal.store() as store:
                names = await known_names(store, kind)
            return sorted(name for name in names if name.startswith(incomplete))

        try:
            return asyncio.run(ask())
        except LimpetError:
            return []  # a shell that completes must not print errors

    return complete


complete_queue: Final = _complete_names("queue")
complete_task: Final = _complete_names("task")
complete_schedule: Final = _complete_names("schedule")


def complete_query(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Conditions on fields whose values are known: states, queues, tasks."""
    sign = incomplete[:1] if incomplete[:1] in ("-", "!") else ""
    begun, colon, value = incomplete.removeprefix(sign).partition(":")
    known: dict[str, Callable[[], list[str]]] = {
        "state": lambda: [state.value for state in STATES if state.value.startswith(value)],
        "queue": lambda: complete_queue(ctx, param, value),
        "task": lambda: complete_task(ctx, param, value),
    }
    asked = [field for field in known if field == begun or (not colon and field.startswith(begun))]
    return [f"{sign}{field}:{found}" for field in asked for found in known[field]()]
