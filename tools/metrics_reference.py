"""Writes docs/reference/metrics.md from the table of metrics.

`python tools/metrics_reference.py` writes the page; with --check it only says whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from limpet.core.metrics.family import LE, MOST, STORE, WORKER, Family

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"
HEAD = """# Metrics

Every metric for Prometheus, from the table by which they are exposed. How to use them:
[See rates, times and depths](../how-to/metrics.md).

"""


def page() -> str:
    """The whole page."""
    lines = [
        "## Of workers",
        "",
        "`limpet worker --metrics [HOST:]PORT`: what the processes of this worker do. Sum them over all workers.",
        "",
        *_table(WORKER),
        "",
        "## Of the store",
        "",
        "`/metrics` of `limpet serve`: what the store knows. Each server says the same, so take `max` over servers.",
        "A token for some queues sees those queues, and no `limpet_store_…`.",
        "",
        *_table(STORE),
        "",
        "## Labels and buckets",
        "",
        f"{MOST} values of a label are told apart, or {MOST} pairs of queue and task; the others are `other`.",
        "A worker tells apart those that it met first, since counters only grow; the store, those with the most jobs.",
        "",
        "Outcomes: `succeeded`, `retried`, `dead`, `cancelled`, `released`, `snoozed`, `suspended`, `held`, `lost`,",
        "`refused`.",
        "",
        f"Histograms have {len(LE)} buckets, one for each doubling: from {LE[0][1] * 1000:g} ms to {LE[-1][1]:,.0f} s.",
    ]
    return HEAD + "\n".join(lines) + "\n"


def _table(families: Iterable[Family]) -> Iterator[str]:
    yield "| metric | kind | labels | what it says |"
    yield "|---|---|---|---|"
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.exposed}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text() != page() and "docs/reference/metrics.md is old: python tools/metrics_reference.py")
    PAGE.write_text(page())
