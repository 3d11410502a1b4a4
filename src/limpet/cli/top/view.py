"""Remembers what a person looks at, and decides what a key does to that; asks nothing and draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from limpet.cli.top.lists import Key, List

KINDS: Final = ("queues", "tasks", "errors", "workers")
PAGE: Final = 10  # rows that a page key moves by

What = Literal["lists", "jobs", "job", "worker", "help"]


class Page(NamedTuple):
    """One page: the lists, the jobs of a query, one job or worker, or the help."""

    what: What
    about: str = ""  # the query, the id, or the session


class Prompt(NamedTuple):
    """A question at the foot of the screen, and the action that its answer belongs to."""

    words: str
    action: str
    key: Key | None = None
    text: str = ""
    asks_yes: bool = False  # one key is the answer


class Asked(NamedTuple):
    """What a key asks the session to do."""

    action: str  # quit, pause, resume, retry
    key: Key | None = None
    text: str = ""


class View:
    """The state of the screen between two looks."""

    def __init__(self, filter: str = "") -> None:
        self.pages: list[Page] = [Page("lists")]
        self.chosen: Key | None = None
        self.zoom: str | None = None
        self.filter = filter
        self.prompt: Prompt | None = None
        self.note = ""
        self.held = False  # the picture stays as it is
        self.scrolled = 0
        self._keys: Sequence[Key] = ()

    @property
    def page(self) -> Page:
        """What is shown."""
        return self.pages[-1]

    def wants(self, name: str) -> bool:
        """Whether a row of that name is shown."""
        return self.filter.lower() in name.lower()

    def shown(self, lists: Sequence[List]) -> None:
        """Tell which rows there are; the chosen one stays, or its neighbour is chosen."""
        keys = [row.key for each in lists for row in each.rows]
        if self.chosen not in keys:
            before = self._keys.index(self.chosen) if self.chosen in self._keys else 0
            self.chosen = keys[min(before, len(keys) - 1)] if keys else None
        self._keys = keys

    def press(self, key: str) -> Asked | None:
        """What becomes of one key."""
        self.note = ""
        if self.prompt is not None:
            return self._answer(self.prompt, key)
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -PAGE, "pgdn": PAGE, "home": -(1 << 30), "end": 1 << 30}
        if key in moves:
            self._move(moves[key])
        elif key in ("q", "esc", "backspace", "left"):
            return self._back(key)
        elif key in ("?", "h"):
            self._open(Page("help"))
        elif key == " ":
            self.held = not self.held
        elif key == "/":
            words = "query" if self.page.what == "jobs" else "filter"
            now = self.page.about if self.page.what == "jobs" else self.filter
            self.prompt = Prompt(words, "filter", text=now)
        elif self.page.what == "lists" and key.isdigit() and int(key) <= len(KINDS):
            self.zoom = KINDS[int(key) - 1] if int(key) else None
            self.chosen = next((each for each in self._keys if self.zoom in (None, each.kind)), None)
        elif key in ("enter", "right"):
            self._open_chosen()
        elif key in ("p", "u", "r"):
            self._ask(key)
        return None

    def _move(self, by: int) -> None:
        if self.page.what in ("job", "worker", "help"):
            self.scrolled = max(0, self.scrolled + by)
        elif self._keys and self.chosen in self._keys:
            place = self._keys.index(self.chosen) + by
            self.chosen = self._keys[max(0, min(len(self._keys) - 1, place))]

    def _back(self, key: str) -> Asked | None:
        if len(self.pages) > 1:
            self.pages.pop()
            self.chosen, self.scrolled = None, 0
        elif key == "q":
            return Asked("quit")
        else:
            self.zoom, self.filter = None, ""
        return None

    def _open(self, page: Page) -> None:
        if self.page.what != page.what:
            self.pages.append(page)
            self.scrolled = 0
            if page.what != "help":
                self.chosen = None

    def _open_chosen(self) -> None:
        match self.chosen:
            case Key("queues", name):
                self._open(Page("jobs", f'queue:"{name}"'))
            case Key("tasks", name):
                self._open(Page("jobs", f'task:"{name}"'))
            case Key("errors", cause):
                self._open(Page("jobs", f"state:dead cause:{cause}"))
            case Key("workers", session):
                self._open(Page("worker", session))
            case Key("jobs", id):
                self._open(Page("job", id))

    def _ask(self, key: str) -> None:
        """Ask before something is changed: a pause takes a reason, a retry a yes."""
        chosen = Key("jobs", self.page.about) if self.page.what == "job" else self.chosen
        stops = {"p": "pause", "u": "resume"}.get(key)
        if stops and chosen is not None and chosen.kind in ("queues", "tasks"):
            self.prompt = Prompt(f"{stops} {chosen.kind[:-1]} {chosen.name}; why?", stops, chosen)
        elif key == "r" and chosen is not None and chosen.kind in ("errors", "jobs", "queues", "tasks"):
            what = {"errors": "the dead jobs of this cause", "jobs": f"job …{chosen.name[-12:]}"}
            words = what.get(chosen.kind, f"the dead jobs of {chosen.kind[:-1]} {chosen.name}")
            self.prompt = Prompt(f"retry {words}? y/n", "retry", chosen, asks_yes=True)
        else:
            self.note = f"choose a queue or a task to {stops}" if stops else "choose an error or a dead job to retry"

    def _answer(self, prompt: Prompt, key: str) -> Asked | None:
        if prompt.asks_yes:
            self.prompt = None
            self.note = "" if key == "y" else "nothing was changed"
            return Asked(prompt.action, prompt.key) if key == "y" else None
        if key == "enter":
            self.prompt = None
            if prompt.action != "filter":
                return Asked(prompt.action, prompt.key, prompt.text)
            self._filtered(prompt.text)
        elif key == "esc":
            self.prompt = None
        elif key == "backspace":
            self.prompt = prompt._replace(text=prompt.text[:-1])
        elif len(key) == 1 and key.isprintable():
            self.prompt = prompt._replace(text=prompt.text + key)
        return None

    def _filtered(self, text: str) -> None:
        if self.page.what == "jobs":
            self.pages[-1] = Page("jobs", text)
        else:
            self.filter = text.strip()
