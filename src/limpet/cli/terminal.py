"""Remembers how one command was called (which store, which form of answer) and writes its answers."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.config import Config, load_config
from limpet.core.errors import StoreUnreachable, UsageError
from limpet.core.records.record import Record
from limpet.core.text.duration import iso
from limpet.core.text.storable import storable
from limpet.stores.open import foreign_file, is_memory, located, missing_file, open_store, redacted

if TYPE_CHECKING:
    from limpet.ops import Operator
    from limpet.ops.bulk import Progress
    from limpet.stores.base import Store


AGAIN_S: Final = 0.2  # how often a store that is away is asked again while a command waits
RIDDEN_MS: Final = 5_000  # how long one that waits without an end is patient with a store that is away


class Terminal:
    """One command's view of the outside: settings, store, stdout for the answer, stderr for the rest."""

    def __init__(self, url: str | None, namespace: str | None, *, json: bool = False, jsonl: bool = False) -> None:
        self.flag_url, self.flag_namespace = url, namespace
        self.json, self.jsonl = json, jsonl
        self.json_log = False  # what the command says goes into a log of JSON lines
        self.watches = False  # its list is shown again and again, over one connection
        self.seen: dict[str, Any] = {}  # what the last look left for the next one
        self.headed = False  # its answer is a table
        self.newest_last = False  # of a screen that is too small the end is kept
        self._kept: Store | None = None

    @cached_property
    def config(self) -> Config:
        """Every setting with the source that won."""
        return load_config(flag_url=self.flag_url, flag_namespace=self.flag_namespace)

    @property
    def place(self) -> str:
        """Where the store of this command is, as people are told."""
        return located(self.config.url.value)

    @cached_property
    def actor(self) -> str:
        """Who is at this terminal, for the audit log."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        return storable(f"{user}@{socket.gethostname()}")  # a name in the environment may be no text

    @asynccontextmanager
    async def store(self, *, create: bool = False, wait_ms: int = 0) -> AsyncIterator[Store]:
        """The store of this command; only commands that may begin one create a missing file."""
        url = self.openable(create=create)
        if self._kept is not None:
            yield self._kept
            return
        store = open_store(url, self.config.namespace.value)
        try:
            await reach(store, wait_ms)
            self._kept = store if self.watches else None
            yield store
        finally:
            if self._kept is None:
                await store.close()

    async def let_go(self) -> None:
        """Close the store that was kept for the next look."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    def openable(self, *, create: bool) -> str:
        """The store's URL, unless opening it would answer from a place where nothing is."""
        url = self.config.url
        if is_memory(url.value):
            raise UsageError(
                f"{redacted(url.value)} is a store in memory, which ends with this command",
                fix="name a file: --url sqlite:///jobs.db",
            )
        if not create and (path := missing_file(url.value)) is not None:
            raise StoreUnreachable(
                f"there is no store at {path} (url from {url.source})",
                fix="go to the folder of your app, pass --url or set LIMPET_URL; `limpet migrate` makes a new store",
            )
        if not create and (path := foreign_file(url.value)) is not None:
            raise StoreUnreachable(
                f"{path} holds tables of another program, and no Limpet store (url from {url.source})",
                fix="pass --url or set LIMPET_URL; `limpet migrate` makes a store in this file",
            )
        return url.value

    @asynccontextmanager
    async def operator(self, *, create: bool = False, wait_ms: int = 0) -> AsyncIterator[Operator]:
        """The operator API over this command's store, with the user of this terminal as the actor."""
        from limpet.ops import Operator

        async with self.store(create=create, wait_ms=wait_ms) as store:
            yield Operator(store, self.actor)

    # -- answers

    @property
    def machine(self) -> bool:
        """True when a program reads the answer."""
        return self.json or self.jsonl

    def answer(self, shape: Any) -> None:
        """One JSON object on stdout; of each look, with its instant, one line."""
        shape = _shape_of(shape)
        if self.watches:
            print(msgspec.json.encode({"at": iso(time.time_ns() // 1_000_000), **shape}).decode())
            return
        raw = msgspec.json.encode(shape)
        print((msgspec.json.format(raw, indent=2) if sys.stdout.isatty() else raw).decode())

    def lines(self, shapes: Iterable[Any]) -> None:
        """One JSON object per line on stdout."""
        for shape in shapes:
            print(msgspec.json.encode(_shape_of(shape)).decode())

    def text(self, words: str) -> None:
        """An answer for people, on stdout."""
        print(clean(words, keep_lines=True))

    def long_text(self, words: str) -> None:
        """A line that breaks between words where the screen ends, and is indented then."""
        if sys.stdout.isatty():
            words = fill(clean(words), shutil.get_terminal_size().columns, subsequent_indent="  ")
        self.text(words)

    def say(self, words: str, *, keep: bool = False) -> None:
        """A message beside the answer, on stderr.

        With --json stderr holds an error or nothing, so only what has no place in the answer (`keep`) is said, as
        JSON; with --jsonl every message is, a line each.
        """
        if self.jsonl or (self.json and keep):
            print(msgspec.json.encode({"note": clean(words, keep_lines=True)}).decode(), file=sys.stderr)
        elif self.json_log and not self.json:
            from limpet.cli.logs import say_line

            say_line("warning" if keep else "info", words)
        elif not self.json:
            print(clean(words, keep_lines=True), file=sys.stderr)

    def refuse(self, code: str, message: str, fix: str) -> None:
        """Say why the command ends here, on stderr."""
        if self.json_log and not self.json:
            from limpet.cli.logs import say_line

            say_line("critical", message, code=code, fix=fix)
        else:
            say_error(code, message, fix, as_json=self.json)

    def say_made(self, path: str | None) -> None:
        """Name the file of a store that this command has made: one in the wrong folder is noticed at once then."""
        if path is not None:
            self.say(f"made a new store: {path}")

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], shapes: Sequence[Any]) -> None:
        """A list: a table for people, one object holding all for --json, a line each for --jsonl."""
        if self.jsonl:
            self.lines(shapes)
        elif self.json:
            self.answer({name: list(map(_shape_of, shapes))})
        elif not rows:
            self.say(f"no {name.replace('_', ' ')}")
        else:
            from limpet.cli.table import show

            self.headed = True
            show(columns, rows)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before many jobs change; without a person at the terminal, --yes is the answer."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"{question} needs a yes, and this is not a terminal", fix="add --yes (or --dry-run)")
        import click

        click.confirm(question, abort=True, err=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A bar on stderr while a person watches; nothing otherwise."""
        if not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def _shape_of(answer: Any) -> Any:
    return answer.to_dict() if isinstance(answer, Record) else answer


def patience_ms(timeout_ms: int | None) -> int:
    """How long a command that waits is patient with a store that is away."""
    return RIDDEN_MS if timeout_ms is None else timeout_ms


async def reach(store: Store, wait_ms: int) -> None:
    """Open a store: at once, or as soon as it can be reached while the command waits anyway."""
    until_s = time.monotonic() + wait_ms / 1000
    while True:
        try:
            await store.open()
            return
        except StoreUnreachable:
            if time.monotonic() >= until_s:
                raise
        await asyncio.sleep(AGAIN_S)


def say_error(code: str, message: str, fix: str, *, as_json: bool) -> None:
    """Why a command ends here, on stderr: words for people, one JSON object for programs."""
    if as_json:
        shape = {"error": {"code": code, "message": storable(message), "fix": storable(fix) or None}}
        print(msgspec.json.encode(shape).decode(), file=sys.stderr)
        return
    print(clean(f"limpet: {message}", keep_lines=True), file=sys.stderr)
    if fix:
        print(clean(f"  {fix}", keep_lines=True), file=sys.stderr)


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Text that cannot move the cursor: what jobs say is not trusted with a terminal."""
    allowed = "\n\t" if keep_lines else ""
    return "".join(c if c.isprintable() or c in allowed else " " if c in "\n\t" else "�" for c in text)
