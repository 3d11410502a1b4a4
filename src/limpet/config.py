"""Reads where settings come from (environment, limpet.toml, pyproject.toml) and resolves which one wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.settings import (
    DEFAULT_NAMESPACE,
    DEFAULT_URL,
    FileSettings,
    Setting,
    first_of,
    parse_settings,
)

_RELATIVE: Final = "sqlite:///"


class Config(Struct, frozen=True):
    """Every setting with the source that won; `file` holds the tables that only files can say."""

    url: Setting
    namespace: Setting
    outbox: Setting | None
    app: Setting | None
    file: FileSettings
    path: Path | None  # the file that was read


def load_config(
    *,
    flag_url: str | None = None,
    code_url: str | None = None,
    flag_namespace: str | None = None,
    code_namespace: str | None = None,
    flag_outbox: str | None = None,
    code_outbox: str | None = None,
    flag_app: str | None = None,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Resolve the settings: flag > code > environment > file > default."""
    env = os.environ if environ is None else environ
    path = _find_file(folder or Path.cwd(), env.get("LIMPET_CONFIG"))
    file = FileSettings() if path is None else _read(path)
    source = str(path)
    app = first_of([(flag_app, "--app"), (env.get("LIMPET_APP"), "LIMPET_APP"), (file.app, source)], "")
    outbox = first_of(
        [
            (flag_outbox, "--outbox"),
            (code_outbox, "code"),
            (env.get("LIMPET_OUTBOX"), "LIMPET_OUTBOX"),
            (_beside(file.outbox, path), source),
        ],
        "",
    )
    return Config(
        url=first_of(
            [
                (flag_url, "--url"),
                (code_url, "code"),
                (env.get("LIMPET_URL"), "LIMPET_URL"),
                (_beside(file.url, path), source),
            ],
            DEFAULT_URL,
        ),
        namespace=first_of(
            [
                (flag_namespace, "--namespace"),
                (code_namespace, "code"),
                (env.get("LIMPET_NAMESPACE"), "LIMPET_NAMESPACE"),
                (file.namespace, source),
            ],
            DEFAULT_NAMESPACE,
        ),
        outbox=outbox if outbox.value else None,
        app=app if app.value else None,
        file=file,
        path=path,
    )


def _find_file(folder: Path, named: str | None) -> Path | None:
    """The file that LIMPET_CONFIG names, else the nearest one upwards; a pyproject.toml ends the search."""
    if named:
        path = Path(named)
        if not path.is_file():
            raise InvalidOption(f"LIMPET_CONFIG names {named!r}, which is not a file", fix="correct or unset it")
        return path
    for place in (folder, *folder.parents):
        if (place / "limpet.toml").is_file():
            return place / "limpet.toml"
        project = place / "pyproject.toml"
        if project.is_file():
            return project if _tool_table(project) is not None else None
    return None


def _read(path: Path) -> FileSettings:
    if path.name == "pyproject.toml":
        found = parse_settings(_tool_table(path) or {}, f"{path} [tool.limpet]")
    else:
        found = parse_settings(_load_toml(path), str(path))
    if found.types:
        from limpet.core.tasks.agent_type import read_table  # few files have types

        for name, table in found.types.items():
            read_table(table, f'{path} [types."{name}"]')
    return found


def _tool_table(path: Path) -> Mapping[str, object] | None:
    tool = _load_toml(path).get("tool")
    table = tool.get("limpet") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise InvalidOption(
            f"{path}: tool.limpet is {table!r:.60}, not a table", fix="write [tool.limpet] and keys below it"
        )
    return table


def _load_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} is not valid TOML: {error}", fix="correct the file") from error


def _beside(url: str | None, path: Path | None) -> str | None:
    """A relative file in a configuration file lies beside that file, from whichever folder it is read.

    Otherwise a producer started in a subfolder would quietly fill another store than its worker drains.
    """
    if url is None or path is None or not url.startswith(_RELATIVE):
        return url
    rest = url[len(_RELATIVE) :]
    if not rest or rest.startswith(("/", ":memory:", "?")):
        return url
    return f"{_RELATIVE}{quote(path.resolve().parent.as_posix())}/{rest}"
