"""No statement of a hot path reads jobs that it does not want: its plan never scans the table of jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.stores.sqlite.connection import connect
from holdfast.stores.sqlite.statements import sources, statements

# Looks at the newest ids on purpose, for a person who typed the end of one.
SCANS = {"by_suffix"}
SMALL = re.compile(r"SCAN (hf_)?(job|j|body|b|attempt|dep|d|result|note|unique)\b")


@pytest.mark.parametrize("name", sorted(statements("hf_")))
def test_no_statement_scans_jobs(name: str, tmp_path: Path) -> None:
    conn = connect(str(tmp_path / "plan.db"), "normal", "hf_")
    sql = statements("hf_")[name].replace(":keys", "?, ?").replace(":rows", "(?, ?, ?)")
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    marks = max(numbered) if numbered else sql.count("?")
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * marks)]
    conn.close()
    scans = [line for line in plan if SMALL.search(line) and "USING" not in line.replace("COVERING ", "")]
    assert name in SCANS or not scans, plan


def test_every_statement_file_says_what_it_promises() -> None:
    for name, text in sources().items():
        assert text.startswith("-- Promise:"), name
