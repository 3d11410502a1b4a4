"""Measures this machine and prints a table: `python -m bench [--only drain,bulk] [--size quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from bench.driver import measured, systems
from bench.plan import MEASURES
from bench.report import setting, table


def main() -> None:
    """Measure, print the table, and write JSON if asked."""
    ids = [measure.id for measure in MEASURES]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = "full" if os.environ.get("HOLDFAST_FULL") else "quick"
    parser.add_argument("--size", choices=["tiny", "quick", "full"], default=size, help="full with HOLDFAST_FULL=1")
    parser.add_argument("--only", metavar="A,B", help=f"some of: {', '.join(ids)}")
    parser.add_argument("--peers", action="store_true", help="measure peers too (make bench-peers installs them)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
    asked = parser.parse_args()
    only = asked.only.split(",") if asked.only else ids
    if unknown := set(only) - set(ids):
        parser.error(f"no measure {', '.join(sorted(unknown))}; there are {', '.join(ids)}")
    chosen = [system for system in systems() if asked.peers or not system.peer]
    results = measured(
        [measure for measure in MEASURES if measure.id in only],
        chosen,
        asked.size,
        lambda text: print(f"bench: {text}", file=sys.stderr, flush=True),
    )
    about = f"{setting()}, size {asked.size}"
    print(f"{about}\n\n{table(results, chosen)}")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"about": about, "size": asked.size, "figures": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
