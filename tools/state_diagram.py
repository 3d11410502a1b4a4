"""Draws the states of a job from the table in core/jobs/state.py into docs/reference/states.md.

`python tools/state_diagram.py` writes the page; with --check it only says whether the page is up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from limpet.core.jobs.state import FINISHED, GROUPS, MOVES, WAITING, State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "states.md"
BEGIN, END = "<!-- generated from core/jobs/state.py: begin -->", "<!-- generated from core/jobs/state.py: end -->"


def diagram() -> str:
    """The table as a mermaid state diagram; jobs enter where they wait."""
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f"    [*] --> {state}: enqueue" for state in State if state in WAITING]
    lines += [f"    {old} --> {new}: {verb}" for old, moves in MOVES.items() for new, verb in moves.items()]
    return "\n".join(["```mermaid", *lines, "```"])


def table() -> str:
    """The same moves in words, for readers without a renderer."""
    rows = ["| from | to | by |", "|---|---|---|"]
    rows += [f"| {old} | {new} | {verb} |" for old, moves in MOVES.items() for new, verb in moves.items()]
    return "\n".join(rows)


def groups() -> str:
    """The words that people and folders of JSON files use."""
    rows = ["| group | states | finished |", "|---|---|---|"]
    for name, states in GROUPS.items():
        members = ", ".join(state for state in State if state in states)
        rows.append(f"| {name} | {members} | {'yes' if states <= FINISHED else 'no'} |")
    return "\n".join(rows)


def drawn(page: str) -> str:
    """The page with the part between the two marks written again."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{PAGE} has lost its marks: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{diagram()}\n\n{table()}\n\n{groups()}\n\n{END}{after}"


def main() -> None:
    """Write the page, or with --check exit 1 when it is out of date."""
    page = PAGE.read_text()
    fresh = drawn(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh)
    elif fresh != page:
        sys.exit(f"{PAGE.name} is out of date: run python tools/state_diagram.py")


if __name__ == "__main__":
    main()
