"""One order decides which setting wins, and no typo passes as a setting that does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet import Limpet
from limpet.config import load_config
from limpet.core.errors import InvalidOption


def test_each_source_wins_over_the_next(tmp_path: Path) -> None:
    env = {"LIMPET_URL": "sqlite:///env.db", "LIMPET_NAMESPACE": "env"}
    (tmp_path / "limpet.toml").write_text('url = "sqlite:////file.db"\nnamespace = "file"\n')
    flag = load_config(flag_url="sqlite:///flag.db", code_url="sqlite:///code.db", folder=tmp_path, environ=env)
    code = load_config(code_url="sqlite:///code.db", code_namespace="code", folder=tmp_path, environ=env)
    environ = load_config(folder=tmp_path, environ=env)
    file = load_config(folder=tmp_path, environ={})
    assert (flag.url.value, flag.url.source) == ("sqlite:///flag.db", "--url")
    assert (code.url.value, code.url.source) == ("sqlite:///code.db", "code")
    assert (environ.url.value, environ.url.source) == ("sqlite:///env.db", "LIMPET_URL")
    assert (file.url.value, file.url.source) == ("sqlite:////file.db", str(tmp_path / "limpet.toml"))
    assert [c.namespace.value for c in (code, environ, file)] == ["code", "env", "file"]


def test_without_any_source_the_store_is_a_file_in_the_working_folder(tmp_path: Path) -> None:
    config = load_config(folder=tmp_path, environ={"LIMPET_URL": ""})
    assert (config.url.value, config.url.source) == ("sqlite:///limpet.db", "default")
    assert config.namespace.value == "default"
    assert config.app is None


def test_a_relative_store_in_a_file_lies_beside_that_file(tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text('url = "sqlite:///jobs.db?sync=normal"\n')
    below = tmp_path / "src" / "pkg"
    below.mkdir(parents=True)
    assert load_config(folder=below, environ={}).url.value == f"sqlite:///{tmp_path}/jobs.db?sync=normal"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:////abs.db", "sqlite:///:memory:", "redis://h/0"])
def test_other_urls_in_a_file_are_taken_as_they_are(tmp_path: Path, url: str) -> None:
    (tmp_path / "limpet.toml").write_text(f'url = "{url}"\n')
    assert load_config(folder=tmp_path, environ={}).url.value == url


def test_the_nearest_pyproject_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text('url = "sqlite:////outer.db"\n')
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load_config(folder=project, environ={}).path is None
    (project / "pyproject.toml").write_text("[tool.limpet]\nurl = 'sqlite:////inner.db'\napp = 'shop:app'\n")
    config = load_config(folder=project, environ={})
    assert config.url.value == "sqlite:////inner.db"
    assert config.app is not None
    assert config.app.value == "shop:app"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("ulr = 'sqlite://'", "did you mean 'url'?"),
        ("[worker]\nconcurency = 3", "did you mean 'concurrency'?"),
        ("[retention]\nfrobnicate = 3", "known: audit, cancelled, dead, events, queues, succeeded"),
        ("[server]\nport = 8787", "known: app, namespace, outbox, retention, url, worker"),
        ("[types.email]\nbreaker = 5", "known: app, namespace, outbox, retention, url, worker"),
        ("[workers]\nconcurrency = 3", "did you mean 'worker'?"),
    ],
)
def test_unknown_keys_are_errors_with_advice(tmp_path: Path, text: str, fix: str) -> None:
    (tmp_path / "limpet.toml").write_text(text)
    with pytest.raises(InvalidOption) as caught:
        load_config(folder=tmp_path, environ={})
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    "text", ["[worker]\nconcurrency = 'many'", "[worker]\nageing = 'often'", "url = 3", "worker = 3", "url ="]
)
def test_wrong_kinds_and_broken_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "limpet.toml").write_text(text)
    with pytest.raises(InvalidOption, match=r"limpet\.toml"):
        load_config(folder=tmp_path, environ={})


def test_a_tool_table_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nlimpet = 'sqlite://'\n")
    with pytest.raises(InvalidOption, match="not a table"):
        load_config(folder=tmp_path, environ={})


def test_limpet_config_names_the_file(tmp_path: Path) -> None:
    named = tmp_path / "other.toml"
    named.write_text("namespace = 'named'\n")
    assert load_config(folder=tmp_path, environ={"LIMPET_CONFIG": str(named)}).namespace.value == "named"
    with pytest.raises(InvalidOption, match="not a file"):
        load_config(folder=tmp_path, environ={"LIMPET_CONFIG": str(tmp_path / "none.toml")})


def test_a_namespace_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidOption, match="namespace=''"):
        Limpet("sqlite://", namespace="")
