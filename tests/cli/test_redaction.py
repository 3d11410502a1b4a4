"""The commands about redaction: list, add and remove; what is hidden cannot be searched by."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_rules_are_added_listed_and_removed(cli: Cli) -> None:
    cli("enqueue", "login", '{"password": "hunter2", "body": "letter"}')
    assert cli("redaction", "--json").json == {"rules": []}
    assert cli("redaction", "add", "password", "--reason", "seen").out == "password: hidden\n"
    assert cli("redaction", "add", "args.body", "--task", "login").out == "args.body of login: hidden\n"
    head, first, second = cli("redaction").out.splitlines()
    assert head.split() == ["RULE", "TASKS", "ADDED", "BY"]
    assert (first.split()[:2], second.split()[:2]) == (["password", "all"], ["args.body", "login"])
    (job,) = cli("jobs", "--json").json["jobs"]
    assert job["args"] == {"password": "•••redacted•••", "body": "•••redacted•••"}
    assert "'password' hides it" in cli("jobs", "args.password:hunter2", code=2).err
    assert "'password' hides it" in cli("cancel", "args.password:h*", "--yes", code=2).err
    removed = cli("redaction", "remove", "args.body", "--task", "login", "--json").json
    assert (removed["rule"], removed["task"]) == ("args.body", "login")
    assert "there is no rule 'args.body'" in cli("redaction", "remove", "args.body", code=3).err
    assert "cannot be read" in cli("redaction", "add", "a..b", code=2).err
    (job,) = cli("jobs", "--json").json["jobs"]
    assert job["args"] == {"password": "•••redacted•••", "body": "letter"}
    kinds = [entry["kind"] for entry in cli("audit", "--json").json["entries"]]
    assert kinds == ["redaction.add", "redaction.add", "redaction.remove"]


def test_what_was_shown_is_not_enqueued(cli: Cli) -> None:
    refused = cli("enqueue", "login", '{"password": "•••redacted•••"}', code=2).err
    assert "in place of a hidden value" in refused
