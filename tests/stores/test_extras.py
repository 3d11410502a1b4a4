"""A missing extra is answered with the line that installs it: a release's, or an editable checkout's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.core.version import VERSION
from limpet.stores.extras import extra_of, install_line

RELEASE, CHECKOUT = "pip install 'limpet[{}]'", "pip install -e '.[{}]'"
NOTES: dict[str, str | None] = {
    "from an index": None,
    "a wheel": json.dumps({"url": "file:///tmp/limpet.whl", "archive_info": {}}),
    "a folder": json.dumps({"url": "file:///src/limpet", "dir_info": {}}),
    "a folder, not editable": json.dumps({"url": "file:///src/limpet", "dir_info": {"editable": False}}),
    "editable": json.dumps({"url": "file:///src/limpet", "dir_info": {"editable": True}}),
}


# Reads URLs whose drivers cannot be imported, in an interpreter of its own: modules once imported stay.
ASKS = """
import sys
sys.modules["hiredis"] = sys.modules["psycopg"] = None
from limpet.core.errors import UsageError
from limpet.outbox import parse_outbox
from limpet.outbox.table import open_table
from limpet.stores.open import open_store
for open_it in (
    lambda: open_store("redis://h"),
    lambda: open_store("postgresql://h/db"),
    lambda: open_table(parse_outbox("postgresql://h/db"), "default"),
):
    try:
        open_it()
    except UsageError as error:
        print(error.fix)
"""


def metadata(folder: Path, note: str | None) -> Path:
    """A folder for the path with metadata of ours in it, as pip leaves it."""
    info = folder / f"limpet-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: limpet\nVersion: {VERSION}\n")
    if note is not None:
        (info / "direct_url.json").write_text(note)
    return folder


@pytest.mark.parametrize("how", NOTES)
def test_the_line_is_that_of_the_installation(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(metadata(tmp_path, NOTES[how]))
    assert install_line("redis") == (CHECKOUT if how == "editable" else RELEASE).format("redis")


@pytest.mark.parametrize(("how", "line"), [("from an index", RELEASE), ("editable", CHECKOUT)])
def test_stores_and_outboxes_without_a_driver_say_the_line(how: str, line: str, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(metadata(tmp_path, NOTES[how]))}
    answer = subprocess.run([sys.executable, "-c", ASKS], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == [line.format(extra) for extra in ("redis", "postgres", "postgres")]


def test_a_driver_without_its_library_is_the_same_extra_and_a_fault_of_ours_is_not() -> None:
    assert extra_of(ImportError("no pq wrapper available"), "postgres") == "postgres"
    assert extra_of(ImportError("no pq wrapper available")) is None
    assert extra_of(ModuleNotFoundError("No module named 'psycopg.x'", name="psycopg.x")) == "postgres"
    assert extra_of(ModuleNotFoundError("No module named 'limpet.typo'", name="limpet.typo"), "postgres") is None


def test_without_metadata_the_line_is_that_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(json.__file__).parents[1])])
    assert install_line("postgres") == RELEASE.format("postgres")
