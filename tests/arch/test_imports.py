"""What `import limpet` may load; who may import whom is import-linter's business (`make check`)."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"pysqlite3", "sqlite3", "redis", "psycopg", "rich", "click", "cronsim", "multiprocessing"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `statement`."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in json.loads(answer.stdout)}


def test_importing_limpet_loads_no_driver_and_no_terminal_library() -> None:
    assert not loaded_by("import limpet") & HEAVY


def test_the_command_line_starts_without_the_libraries_that_only_some_commands_need() -> None:
    assert not loaded_by("import limpet.cli") & (HEAVY - {"click"})
