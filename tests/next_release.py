"""The next release, made up: a copy of this source with some lines changed. Upgrades are tested with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
STARTER: Final = Path("tests", "chaos", "start_worker.py")

Changes = Mapping[str, Mapping[str, str]]  # file below src/limpet → text of this release → text of the next

# Redis: a script adds a key, a field to what scripts wrote into a record, and one to what clients wrote.
REDIS: Final[Changes] = {
    "stores/redis/lua/lib/base.lua": {"base.LAYOUT = 1": "base.LAYOUT = 2"},
    "stores/redis/lua/lib/tx.lua": {
        "function tx.finish()\n": 'function tx.finish()\n  call("HINCRBY", P .. "rg", "eu", 1)\n'
    },
    "stores/redis/lua/lib/record.lua": {
        "function record.close(r)\n": 'function record.close(r)\n  r.rare.region = "eu"\n'
    },
    "stores/redis/record.py": {
        "    costs: dict[str, int]\n": '    costs: dict[str, int]\n    region: str = ""\n',
        "job.if_parent_fails, states, job.costs)": 'job.if_parent_fails, states, job.costs, "eu")',
    },
}

# Redis: a layout on which this release would do harm, and says so.
REDIS_FOR_ITSELF: Final[Changes] = {
    "stores/redis/lua/lib/base.lua": {
        "base.LAYOUT = 1": "base.LAYOUT = 2",
        "base.MIN_CLIENT = 1": "base.MIN_CLIENT = 2",
    }
}

# SQLite: a migration adds a column, an index and a table; jobs of the next release fill them.
SQLITE: Final[Changes] = {
    "stores/sqlite/connection.py": {"LAYOUT: Final = 1 ": "LAYOUT: Final = 2 "},
    "stores/sqlite/sql/enqueue.sql": {
        "flow, unique_key, id, args, extra)\nSELECT ": "flow, unique_key, region, id, args, extra)\nSELECT ",
        "?, column1, column2, column3 FROM (VALUES :rows)": "?, 'eu', column1, column2, column3 FROM (VALUES :rows)",
    },
    "stores/sqlite/sql/schema_002.sql": {
        "": """-- Promise: layout 2. Inputs: none. Answer: none.
ALTER TABLE limpet_job ADD COLUMN region TEXT;
CREATE INDEX limpet_job_region ON limpet_job (region, id) WHERE region IS NOT NULL;
CREATE TABLE limpet_region (name TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO limpet_region VALUES ('eu');
UPDATE limpet_job SET region = 'old';
"""
    },
}


def next_release(folder: Path, changes: Changes) -> Path:
    """A made-up release in `folder`: its `src` is what PYTHONPATH takes."""
    shutil.copytree(ROOT / "src" / "limpet", folder / "src" / "limpet", ignore=shutil.ignore_patterns("__pycache__"))
    starter = folder / STARTER
    starter.parent.mkdir(parents=True)
    shutil.copy(ROOT / STARTER, starter)
    for name, lines in changes.items():
        for now, then in lines.items():
            edit(folder / "src" / "limpet" / name, now, then)
    return folder


def edit(file: Path, now: str, then: str) -> None:
    """Change one place of a file; where nothing was, `then` is the whole of a new one."""
    text = file.read_text() if now else ""
    assert text.count(now) == 1, f"{file.name} has {text.count(now)} times {now!r}: make up another change"
    file.write_text(text.replace(now, then))


def run(source: Path, code: str, *words: str) -> str:
    """Run a program under a release; what it printed."""
    command, env = [sys.executable, "-c", code, *words], {**os.environ, "PYTHONPATH": str(source / "src")}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
