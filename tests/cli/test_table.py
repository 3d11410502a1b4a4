"""A list never loses a column without a word, however narrow the screen."""

from __future__ import annotations

import sys

import pytest

from holdfast.cli.table import show

COLUMNS = ("id", "state", "task", "queue", "attempt", "age", "error")
ROW = ("01a1e175-0f87-7102-90dc-4e2ee7637c00", "dead", "shop.email.send", "mail", 5, "1h30m", "ValueError: " + "x" * 90)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 300])
def test_every_column_and_every_id_is_there(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show(COLUMNS, [ROW])
    out = capsys.readouterr().out
    for word in (*COLUMNS, *map(str, ROW[:-1]), "ValueError: "):
        assert word in out
