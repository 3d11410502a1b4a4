"""Measures this machine and prints a table: `python -m bench [--engine redis] [--only drain,bulk] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import get_args

from bench.driver import measured
from bench.plan import MEASURES
from bench.report import releases, setting, table
from bench.systems import systems
from bench.targets import Engine, rows


def main() -> None:
    """Measure, print the table, and write JSON if asked."""
    ids = [measure.id for measure in MEASURES]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = "full" if os.environ.get("LIMPET_FULL") else "quick"
    parser.add_argument("--engine", choices=get_args(Engine), default="sqlite", help="sqlite unless said otherwise")
    parser.add_argument("--url", help="an empty Redis server that runs already, instead of a private one")
    parser.add_argument("--size", choices=["tiny", "quick", "full"], default=size, help="full with LIMPET_FULL=1")
    parser.add_argument("--only", metavar="A,B", help=f"some of: {', '.join(ids)}")
    parser.add_argument("--peers", action="store_true", help="measure peers too (make bench-peers installs them)")
    parser.add_argument("--systems", metavar="A,B", help="only these columns, peers included")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
    asked = parser.parse_args()
    engine: Engine = "redis" if asked.url else asked.engine
    only = asked.only.split(",") if asked.only else ids
    if unknown := set(only) - set(ids):
        parser.error(f"no measure {', '.join(sorted(unknown))}; there are {', '.join(ids)}")
    able = systems(engine, asked.url)
    chosen = [system for system in able if asked.peers or system.role != "peer"]
    if asked.systems is not None:
        names = asked.systems.split(",")
        chosen = [system for system in able if system.name in names]
        if unknown := set(names) - {system.name for system in able}:
            parser.error(f"no system {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in able)}")
    wanted = {row.measure for row in rows(engine)} & set(only)
    results = measured(
        [measure for measure in MEASURES if measure.id in wanted],
        chosen,
        asked.size,
        lambda text: print(f"bench: {text}", file=sys.stderr, flush=True),
    )
    about = f"{setting(engine)}, size {asked.size}"
    versions = {system.name: system.versions(engine) for system in chosen}
    print(f"{about}\n\n{releases(versions)}\n\n{table(engine, results, chosen)}")
    if asked.json is not None:
        kept = {"about": about, "engine": engine, "size": asked.size, "versions": versions, "figures": results}
        asked.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
