"""A made-up next release: this one, copied into a folder, with a further layout and a client that needs it.

It does one of each thing that a layout may do (sql/README.md). A table that every claim reads has a new column. There
is a new table. A verb has another body. A verb that takes one more argument has the next number; the old one is kept.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from limpet.stores.postgres.layout import FOLDER, newest
from tests.next_release import ROOT, edit, next_release

THIS: Final = newest()
NEXT: Final = THIS + 1

# Both tables keep their columns in one order, and `seen` is the last of them (sql/README.md).
_TABLES: Final = """-- Promise: gates have a remark, and hand-outs are written down. Inputs: none. Answer: none.
-- Min client: {min_client}
LOCK TABLE lp.gate_old, lp.gate;
ALTER TABLE lp.gate ADD COLUMN remark text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE lp.gate_old
  DROP COLUMN seen,
  ADD COLUMN remark text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN seen xid8;
-- Leases by the release whose claim made them; NULL: a claim that was under way while verbs were replaced.
CREATE TABLE lp.handout (token bigint NOT NULL PRIMARY KEY, release integer);
"""
_LEASED: Final = "PERFORM lp.write_leases(p_session, v_got.tokens, v_got.hards, cardinality(v_got.ids), now_ms);"
_CLAIM: Final = re.compile(
    r"CREATE OR REPLACE FUNCTION lp\.claim_1\((?P<takes>.*?)(?P<gives>,\s+OUT.*?)\) LANGUAGE", re.DOTALL
)


def make_next(folder: Path, *, min_client: int = 1) -> Path:
    """The next release in `folder`: PYTHONPATH takes its `src`. `min_client`: the oldest that its layout lets in."""
    next_release(folder, {})
    engine = folder / "src" / FOLDER.parent.relative_to(ROOT / "src")
    (engine / f"sql/tables/{NEXT:04}.sql").write_text(_TABLES.format(min_client=min_client))
    edit(
        engine / "sql/verbs/20_gates_math.sql",
        "v_gate.announced_marks := 0;",
        "v_gate.announced_marks := 0;\n  v_gate.remark := '';",
    )
    _number_claim(engine / "sql/verbs/63_claim.sql")
    client = engine / "claim.py"
    edit(client, "FROM lp.claim_1(", "FROM lp.claim_2(")
    edit(client, "%b::jsonb, %b::bigint\n)", "%b::jsonb, %b::bigint, %b::integer\n)")
    edit(client, "request.options,\n        now_ms,\n", f"request.options,\n        now_ms,\n        {NEXT},\n")
    return folder


def limpet(source: Path, *words: str) -> str:
    """A command of a release; what it printed."""
    answer = ask_limpet(source, *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def ask_limpet(source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The same, for one that may fail."""
    command = [sys.executable, "-c", "import limpet.cli as cli; raise SystemExit(cli.main())", *words]
    env = {**os.environ, "PYTHONPATH": str(source / "src")}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def _number_claim(file: Path) -> None:
    """Claims say which release asks: the verb has the next number, and the old one calls it."""
    text = file.read_text()
    found = _CLAIM.search(text)
    assert found is not None, f"{file.name} has another claim: make up another change"
    takes, gives = found["takes"], found["gives"]
    names = ", ".join(re.findall(r"\bp_\w+", takes))
    # A body that is replaced in place: claims that are under way call it, too.
    edit(
        file,
        "  PERFORM setval('lp.tokens', p_tokens[cardinality(p_tokens)]);\n",
        "  PERFORM setval('lp.tokens', p_tokens[cardinality(p_tokens)]);\n"
        "  INSERT INTO lp.handout (token) SELECT t FROM unnest(p_tokens) AS t;\n",
    )
    edit(file, f"lp.claim_1({takes}{gives})", f"lp.claim_2({takes}, p_release integer{gives})")
    edit(file, _LEASED, f"{_LEASED}\n    UPDATE lp.handout SET release = p_release WHERE token = ANY (v_got.tokens);")
    kept = f"SELECT c.* FROM lp.claim_2({names}, {THIS}) AS c"
    old = f"\n-- As the release before asks.\n{found[0]} sql AS $$\n  {kept}\n$$;\n"
    file.write_text(file.read_text() + old)
