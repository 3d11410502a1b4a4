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
        ("[server]\nprot = 8787", "did you mean 'port'?"),
        ("[mails.email]\nbreaker = 5", "known: alerts, app, namespace, outbox, retention, server, types, url, worker"),
        ("[workers]\nconcurrency = 3", "did you mean 'worker'?"),
    ],
)
def test_unknown_keys_are_errors_with_advice(tmp_path: Path, text: str, fix: str) -> None:
    (tmp_path / "limpet.toml").write_text(text)
    with pytest.raises(InvalidOption) as caught:
        load_config(folder=tmp_path, environ={})
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loopback_role = 'amdin'", "did you mean 'admin'?"),
        ("loopback_role = ''", "is not a role"),
        ("port = 70000", "port=70000 is not a port"),
        ("rate = 'often'", "rate='often' cannot be read"),
        ("burst = 0", "burst=0: the number must be ≥ 1"),
        ("allowed_hosts = ['https://limpet.internal']", "without scheme and port"),
        ("allowed_hosts = ['limpet.internal:8787']", "without scheme and port"),
        ("allowed_origins = ['https://ops.example.com/']", "without a path"),
        ("allowed_origins = ['*']", "which is not an origin"),
    ],
)
def test_who_may_use_the_server_is_said_in_a_way_that_makes_sense(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "limpet.toml").write_text(f"[server]\n{text}\n")
    with pytest.raises(InvalidOption) as caught:
        load_config(folder=tmp_path, environ={})
    assert "limpet.toml [server]" in caught.value.message
    assert words in str(caught.value)


def test_the_server_table_has_safe_defaults_and_takes_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text("")
    plain = load_config(folder=tmp_path, environ={}).file.server
    assert (plain.bind, plain.port, plain.loopback_role) == ("127.0.0.1", 8787, "admin")
    assert (plain.allowed_hosts, plain.allowed_origins) == ([], [])
    (tmp_path / "limpet.toml").write_text(
        "[server]\nbind = '::1'\nport = 0\nloopback_role = 'none'\nrate = '10/m'\nburst = 50\n"
        "allowed_hosts = ['limpet.internal', '[fe80::1]']\nallowed_origins = ['http://localhost:3000']\n"
    )
    said = load_config(folder=tmp_path, environ={}).file.server
    assert (said.bind, said.loopback_role, said.burst, len(said.allowed_hosts)) == ("::1", "none", 50, 2)


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


async def test_the_address_of_a_webhook_that_is_none_is_refused_before_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limpet.toml").write_text('[alerts.webhooks.pager]\nurl_env = "PAGER"\n')
    monkeypatch.setenv("LIMPET_CONFIG", str(tmp_path / "limpet.toml"))
    async with Limpet("sqlite://") as app:
        await app.publish()
        (rules,) = await app.store.controls("alert")
        assert b"pager" in rules.value
        monkeypatch.setenv("PAGER", "not an address: s3cret")
        with pytest.raises(InvalidOption, match="webhook pager: url is not an address") as refused:
            await app.publish()
        assert "s3cret" not in str(refused.value)
