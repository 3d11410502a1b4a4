"""Decides how a picture fills a screen: the head, the lists in the room that each gets, the foot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from limpet.cli.tasks import count_text, share_text, time_text
from limpet.cli.top.ink import Line, Piece, Style, cells, fitted, pieces, plain, sparkline, wrapped
from limpet.cli.top.lists import List, list_of_jobs, lists_of

if TYPE_CHECKING:
    from limpet.cli.top.picture import Pace, Picture
    from limpet.cli.top.view import View

SHOWN: Final = ("ready", "running", "scheduled", "blocked", "dead")
LEAST: Final = 2  # rows that a list keeps, however little room there is

HELP: Final = (
    ("↑ ↓  j k  PgUp PgDn", "choose a row; it stays chosen while the numbers change"),
    ("Enter", "open: the jobs of a row, one job, one worker"),
    ("Esc  Backspace", "go back"),
    ("p  u", "pause the chosen queue or task; resume it"),
    ("r", "retry the chosen dead job, or the dead jobs of the row"),
    ("/", "filter the rows by name; change the query of jobs"),
    ("1 2 3 4", "only queues, tasks, errors, workers; 0 all"),
    ("Space", "hold the picture, and go on"),
    ("q", "quit"),
)


class Where(NamedTuple):
    """What the head says of the screen itself."""

    store: str
    every: str
    away: str = ""  # why the picture is old


def frame(picture: Picture, view: View, pace: Pace, where: Where, size: tuple[int, int]) -> list[Line]:
    """The lines of a screen of this size, in columns and rows; the first is the title, the last the foot."""
    columns, rows = size
    head = [_title(where, picture, columns, held=view.held), *_head(picture, pace, columns)]
    return [*head, *body(picture, view, columns, rows - len(head) - 1), _foot(view, where)]


def body(picture: Picture, view: View, columns: int, room: int) -> list[Line]:
    """What lies between head and foot."""
    match view.page.what:
        case "help":
            made: list[Line] = [pieces(""), *(_help_line(keys, words) for keys, words in HELP)]
        case "job" | "worker":
            made = _told(picture, view, columns, room)
        case "jobs":
            only = list_of_jobs(picture.jobs, picture.at_ms)
            view.shown([only])
            made = [pieces(Piece(f" {view.page.about or 'all jobs'}", "bold")), *_drawn(only, view, columns, room - 1)]
        case _:
            made = _lists(picture, view, columns, room)
    return [*made[:room], *([pieces("")] * (room - len(made)))]


def _title(where: Where, picture: Picture, columns: int, *, held: bool) -> Line:
    clock = datetime.fromtimestamp(picture.at_ms / 1000).astimezone().strftime("%H:%M:%S")
    right = f"{'held' if held else where.every}  {clock} "
    return pieces(f" limpet top  {fitted(where.store, columns - len(right) - 13)}{right}")


def _head(picture: Picture, pace: Pace, columns: int) -> list[Line]:
    stats, minute = picture.stats, picture.stats.last_minute
    styles: dict[str, Style] = {"ready": "cold", "running": "blue", "dead": "bad", "blocked": "warn"}
    counts: list[str | Piece] = []
    for state in SHOWN:
        number = getattr(stats, state)
        counts += [Piece(f" {number:,}", styles.get(state, "bold") if number else "dim"), Piece(f" {state} ", "dim")]
    share = minute.failed_share
    rates: list[str | Piece] = [
        Piece(f" {count_text(minute.finished) or '0'}", "bold"),
        Piece(" done/min  ", "dim"),
        Piece(share_text(share) or "0%", "bad" if share else ""),
        Piece(" failed  ", "dim"),
    ]
    for label, p50_s, p95_s, p99_s in (
        ("run", minute.run_p50_s, minute.run_p95_s, minute.run_p99_s),
        ("wait", minute.wait_p50_s, minute.wait_p95_s, minute.wait_p99_s),
    ):
        known = [time_text(value) for value in (p50_s, p95_s, p99_s) if value is not None]
        rates += [Piece(f"{label} ", "dim"), "/".join(known) or "–", "  "]
    rates.append(Piece("p50/95/99", "dim"))
    said = f" {pace.now:,.0f}/s now "
    line = sparkline(pace.minutes, columns - len(said) - 1)
    return [pieces(*counts), pieces(*rates), pieces(Piece(f" {line}", "good"), Piece(said, "bold"))]


def _lists(picture: Picture, view: View, columns: int, room: int) -> list[Line]:
    found = [each for each in lists_of(picture, view.wants) if view.zoom in (None, each.kind)]
    view.shown(found)
    wanted, heads = [len(each.rows) for each in found], len(found)
    gap: list[Line] = [pieces("")] if sum(wanted) + 2 * heads <= room else []  # between lists, where there is room
    made: list[Line] = []
    for each, rows in zip(found, shares(wanted, room - heads), strict=True):
        made += [*gap, *_drawn(each, view, columns, rows + 1)]
    return made


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each list gets: at least a few, and what is left goes round."""
    given = [min(want, LEAST) for want in wanted]
    while sum(given) > max(0, room):
        given[given.index(max(given))] -= 1
    while sum(given) < room:
        poor = [place for place, want in enumerate(wanted) if given[place] < want]
        if not poor:
            break
        given[min(poor, key=given.__getitem__)] += 1
    return given


def _drawn(each: List, view: View, columns: int, room: int) -> list[Line]:
    """A list in this number of rows with its head; the chosen row is among them."""
    rows = max(0, room - 1)
    place = next((number for number, row in enumerate(each.rows) if row.key == view.chosen), 0)
    first = max(0, min(place - rows // 2, len(each.rows) - rows))
    shown = each.rows[first : first + rows]
    names = [Piece(column.name.upper(), "head") for column in each.columns]
    if len(shown) < len(each.rows):
        names[0] = Piece(f"{names[0].text} {len(shown)} of {len(each.rows):,}", "head")
    made: list[Line] = [[Piece(" "), *cells(each.columns, names, columns - 1)]]
    for row in shown:
        chosen = row.key == view.chosen
        line = cells(each.columns, row.values, columns - 1)
        made.append(
            [
                Piece("▸" if chosen else " ", "key"),
                *(Piece(text, "bold") if chosen and not style else Piece(text, style) for text, style in line),
            ]
        )
    return made


def _told(picture: Picture, view: View, columns: int, room: int) -> list[Line]:
    from limpet.cli.top.details import lines_of_job, lines_of_worker

    told = lines_of_job(picture) if view.page.what == "job" else lines_of_worker(picture, view.page.about)
    lines = [part for line in told for part in wrapped(line, columns - 2)]
    view.scrolled = min(view.scrolled, max(0, len(lines) - room))
    return [pieces(f" {line}") for line in lines[view.scrolled : view.scrolled + room]]


def _help_line(keys: str, words: str) -> Line:
    return pieces(Piece(f"  {keys:<22}", "key"), words)


def _foot(view: View, where: Where) -> Line:
    if view.prompt is not None:
        return pieces(
            Piece(f" {view.prompt.words} ", "bold"), view.prompt.text, Piece("" if view.prompt.asks_yes else "▏", "dim")
        )
    if where.away:
        return pieces(Piece(f" {where.away}", "bad"))
    if view.note:
        return pieces(Piece(f" {view.note}", "warn"))
    keys = {"↑↓": "choose", "enter": "open", "p": "pause", "r": "retry", "/": "filter", "1-4": "one list", "?": "help"}
    made: list[str | Piece] = []
    if view.page.what != "lists":
        keys = {"↑↓": "move", "enter": "open", "r": "retry", "/": "query", "esc": "back", "?": "help"}
    elif view.filter:
        made.append(Piece(f" filter: {view.filter} ", "warn"))
        keys = {"esc": "all rows", **{key: keys[key] for key in ("enter", "p", "r", "/", "?")}}
    for key, word in {**keys, "q": "quit" if len(view.pages) == 1 else "back"}.items():
        made += [Piece(f" {key}", "key"), Piece(f" {word} ", "dim")]
    return pieces(*made)


def printed(picture: Picture, name: str, columns: int) -> list[str]:
    """One look as text, with all rows whose names contain `name`."""
    from limpet.cli.top.picture import Pace
    from limpet.cli.top.view import View

    view = View(name)
    counts, rates, _ = _head(picture, Pace(), columns)
    lists = lists_of(picture, view.wants)
    made = [counts, rates]
    for each in lists:
        made += [pieces(""), *_drawn(each, view, columns, len(each.rows) + 1)]
    return [plain(line) for line in made]
