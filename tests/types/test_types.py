"""The checker knows a task's arguments and its result: what is right passes, what is wrong is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def _errors(file: Path, cache: Path) -> set[tuple[int, str]]:
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", "--no-error-summary", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert not run.stderr, run.stderr
    found = set()
    for line in run.stdout.splitlines():
        match = re.match(r"(.*?):(\d+): error: .*\[([a-z-]+)\]$", line)
        if match:
            assert Path(match[1]).name == file.name, line
            found.add((int(match[2]), match[3]))
    return found


def test_what_is_right_type_checks(tmp_path: Path) -> None:
    assert _errors(HERE / "accepts.py", tmp_path) == set()


def test_what_is_wrong_is_refused_line_by_line(tmp_path: Path) -> None:
    lines = (HERE / "refuses.py").read_text().splitlines()
    expected = {
        (number, code.strip())
        for number, line in enumerate(lines, 1)
        if "  # E:" in line
        for code in line.partition("  # E:")[2].split(",")
    }
    checked = tmp_path / "refused.py"
    checked.write_text("\n".join(["#", *lines[1:]]))
    assert lines[0] == "# mypy: ignore-errors"
    assert len(expected) > 10
    assert _errors(checked, tmp_path / "cache") == expected
