"""The command that walks a person through the causes of dead jobs, and does what they decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.deciding import Back, Deciding
from limpet.cli.prompt import ask, at_terminal
from limpet.cli.terminal import Terminal, clean
from limpet.cli.words import command
from limpet.core.endings.review import STATUSES, WAITING
from limpet.core.errors import LimpetError, StoreError, UsageError
from limpet.core.tasks.naming import nearest

if TYPE_CHECKING:
    from limpet.core.records.cause import CauseRecord
    from limpet.ops import Operator

MOST: Final = 10_000  # causes that a store keeps apart

# key → its words, and what it does; that answers True when the cause is decided
_KEYS: Final[dict[str, tuple[str, Callable[[Deciding], Awaitable[bool]]]]] = {
    "r": ("retry the sample", Deciding.retry_sample),
    "ra": ("retry all", Deciding.retry_all),
    "e": ("edit the sample", Deciding.edit_sample),
    "d": ("discard the sample", Deciding.discard_sample),
    "da": ("discard all", Deciding.discard_all),
    "a": ("acknowledge", Deciding.acknowledge),
    "z": ("snooze", Deciding.snooze),
    "f": ("resolve (fixed)", Deciding.resolve),
    "o": ("assign to its owner", Deciding.assign),
    "n": ("note", Deciding.note),
    "x": ("escalate", Deciding.escalate),
}
_MOVES: Final = {"l": "look again", "s": "skip", "q": "quit"}
_WORDS: Final = {key: words for key, (words, _) in _KEYS.items()} | _MOVES
_ACROSS: Final = 3  # keys in one line: 75 columns


@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Not open and regressed ones; repeatable.")
@click.option("--assignee", metavar="NAME", help="Only theirs.")
async def review_body(terminal: Terminal, queue: str | None, status: tuple[str, ...], assignee: str | None) -> None:
    """Walk through the causes of dead jobs at the terminal, worst first: retry, edit, discard, snooze and more.

    It says what a decision will do, asks before it discards jobs or retries many, and asks for a reason, which the
    audit log keeps. Only for a person at a terminal.
    """
    if terminal.machine or not at_terminal():
        raise UsageError(
            "a review asks a person, and this is no terminal" if not terminal.machine else "a review answers no JSON",
            fix="list with `limpet dead causes --status open --status regressed --json`, look with `limpet dead cause "
            "CAUSE`, decide with `limpet dead retry`, `edit`, `discard`, `acknowledge`, `snooze`, `resolve`, `assign`, "
            "`note` or `escalate`",
        )
    picked: Any = status or tuple(WAITING)
    async with terminal.operator() as operator:
        found = await operator.desk.causes(queue, status=picked, assignee=assignee, limit=MOST)
        worst_first = sorted((one for one in found if one.count), key=_rank)
        if not worst_first:
            terminal.say("no cause of dead jobs waits for a person")
            return
        await _Review(terminal, operator, frozenset(picked)).walk(worst_first)


def _rank(one: CauseRecord) -> tuple[bool, bool, int]:
    """Escalated ones first, then regressed ones; of these, those with most dead jobs."""
    return one.escalated_at is None, one.status != "regressed", -one.count


class _Quit(Exception):
    """The person has seen enough."""


class _Review:
    """One person's way through the causes."""

    def __init__(self, terminal: Terminal, operator: Operator, statuses: frozenset[str]) -> None:
        self.terminal, self.operator, self.statuses = terminal, operator, statuses
        self.decided: Counter[str] = Counter()

    async def walk(self, causes: Sequence[CauseRecord]) -> None:
        """Go from cause to cause until the last one, or until the person quits."""
        seen = 0
        try:
            for cause in causes:
                seen += 1
                self.terminal.text(f"\n--- {seen} of {len(causes)} ---")
                await self._visit(Deciding(self.terminal, self.operator, cause, self.decided))
        except _Quit:
            pass
        finally:  # also after Ctrl-C
            done = ", ".join(f"{count:,} × {verb}" for verb, count in self.decided.items()) or "nothing was decided"
            self.terminal.text(f"\nreview: {seen} of {len(causes)} causes seen; {done}")
            if self.decided:
                self.terminal.text("limpet dead log --since 1h writes the decisions as Markdown")

    async def _visit(self, deciding: Deciding) -> None:
        """Ask about one cause until it is decided."""
        there = await self._look(deciding)
        if there:
            self._show_keys(deciding)
        while there:
            word = await ask("decide (? shows the keys): ")
            if word is None or word == "q":
                raise _Quit
            if word == "s":
                return
            if word == "l":
                there = await self._look(deciding)
            elif word not in _KEYS:
                self._show_keys(deciding, unknown=word)
            elif await self._decides(deciding, word):
                return
            elif deciding.stale:
                there = await self._look(deciding)

    async def _look(self, deciding: Deciding) -> bool:
        """Show the cause as it is now; False when it waits for no person any more."""
        found = await deciding.look()
        if found is None:
            self.terminal.text("none of its jobs is dead any more")
            return False
        if found.status not in self.statuses:
            self.terminal.text(f"it is {found.status} by now, and passed over")
            return False
        return True

    async def _decides(self, deciding: Deciding, key: str) -> bool:
        """Do what the key means; what goes wrong is said, and the cause stays to be decided."""
        try:
            return await _KEYS[key][1](deciding)
        except (Back, click.Abort):  # the second at a question of the editor
            self.terminal.text("nothing was changed")
        except StoreError:
            raise
        except LimpetError as error:
            deciding.stale = error.code == "cause_changed"
            self.terminal.long_text(error.message)
            if error.fix:
                self.terminal.long_text(f"  {error.fix}")
        return False

    def _show_keys(self, deciding: Deciding, unknown: str = "") -> None:
        if unknown not in ("", "?"):
            close = nearest(unknown, _WORDS)
            hint = f"; did you mean {close!r}?" if close else ""
            self.terminal.text(f"{clean(unknown)[:20]!r} is no key{hint}")
        cells = []
        for key, words in _WORDS.items():
            cells.append(f"{key:<3}{words}{f' {deciding.cause.count:,}' if key in ('ra', 'da') else ''}")
        for start in range(0, len(cells), _ACROSS):
            self.terminal.text("  " + "".join(f"{cell:<25}" for cell in cells[start : start + _ACROSS]).rstrip())


review = command("review")(review_body)
