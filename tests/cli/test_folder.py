"""Commands about a folder of JSON files: import tells the damage, export follows the queue."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def test_a_folder_is_imported_worked_off_and_exported(cli: Cli, tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    queue.mkdir()
    (queue / "pending.json").write_text('[{"id": "a", "type": "eng", "priority": 9}, {"id": "b"}]')
    ran = cli("import", "--folder", "queue", code=1)
    assert "new jobs: 1 pending; 0 were there; 1 refused" in ran.out
    assert "pending.json b: type is None" in ran.err
    assert cli("import", "--folder", "queue", "--json", code=1).json["existing"] == 1
    held = cli("claim", "--agent", "a1", "--json").json
    cli("complete", held["id"], "--token", str(held["token"]), "--result", "7")
    out = cli("export", "--folder", "queue", "--watch", "--looks", "1").out
    assert "completed.json" in out
    (entry,) = json.loads((queue / "completed.json").read_text())["tasks"]
    assert (entry["id"], entry["priority"], entry["result"]) == ("a", 9, 7)
    assert cli("export", "--folder", "queue", "--json").json["written"] == []
    assert "is not a folder" in cli("import", "--folder", "nowhere", code=3).err
