"""The enqueue command: with and without an app."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Cli

APP = f"{Path(__file__).parent / 'shop.py'}:app"


def test_without_an_app_it_says_what_was_not_checked(cli: Cli) -> None:
    ran = cli("enqueue", "email.send", '{"to":"a@b.c"}')
    (line,) = ran.out.splitlines()
    assert cli("job", line, "--json").json["args"] == {"to": "a@b.c"}
    assert "signature" in ran.err


def test_with_an_app_the_signature_is_checked(cli: Cli) -> None:
    ran = cli("enqueue", "email.send", '{"to":"a@b.c"}', "--app", APP, "--json")
    assert "signature" not in ran.err
    shape = cli("job", ran.json["id"], "--json").json
    assert (shape["queue"], shape["priority"]) == ("email", 0)
    assert "count" in cli("enqueue", "email.send", '{"to":"a","count":"x"}', "--app", APP, code=2).err
    assert "to" in cli("enqueue", "email.send", "{}", "--app", APP, code=2).err


def test_a_task_that_the_app_does_not_declare_is_refused_and_not_stored(cli: Cli) -> None:
    refused = cli("enqueue", "email.sned", "{}", "--app", APP, code=1)
    assert f"{APP} declares no task 'email.sned'; nothing was stored" in refused.err
    assert "did you mean 'email.send'" in refused.err
    assert not cli.path.exists()
    told = cli("enqueue", "email.sned", "{}", "--app", APP, "--json", code=1).err
    assert msgspec.json.decode(told.splitlines()[-1])["error"]["code"] == "unknown_task"


def test_a_task_of_another_app_is_stored_when_that_is_meant(cli: Cli) -> None:
    ran = cli("enqueue", "email.sned", '{"any": 1}', "--app", APP, "--unknown-ok")
    assert "declares no task 'email.sned': only JSON and size were checked" in ran.err
    assert cli("job", ran.out.strip(), "--json").json["args"] == {"any": 1}


def test_the_app_may_come_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPET_APP", APP)
    assert "signature" not in cli("enqueue", "email.send", '{"to":"a"}').err
    cli("enqueue", "email.send", "{}", code=2)
    cli("enqueue", "x", "--app", "no_such_module:app", code=2)


def test_options_reach_the_job(cli: Cli) -> None:
    parent = cli("enqueue", "a").out.strip()
    id = cli(
        *("enqueue", "b", "{}", "--queue", "q", "--priority", "low", "--expires-in", "1h", "--unique", "k"),
        *(
            "--after",
            parent,
            "--if-parent-fails",
            "wait",
            "--needs",
            "eu",
            "--tag",
            "x",
            "--tag",
            "y",
            "--tenant",
            "acme",
        ),
        *("--cost", "3", "--timeout", "30", "--attempts", "2"),
    ).out.strip()
    shape = cli("job", id, "--json").json
    assert (shape["state"], shape["queue"], shape["priority"], shape["tenant"]) == ("blocked", "q", 8, "acme")
    assert (shape["after"], shape["needs"], shape["tags"], shape["unique"]) == ([parent], ["eu"], ["x", "y"], "k")
    assert (shape["cost"], shape["timeout_s"], shape["attempts"], shape["if_parent_fails"]) == (3, 30, 2, "wait")
    assert shape["expires_at"] is not None


def test_times(cli: Cli) -> None:
    later = cli("enqueue", "a", "--delay", "1h").out.strip()
    assert cli("job", later, "--json").json["state"] == "scheduled"
    at = cli("enqueue", "a", "--at", "2126-01-31T08:00:00+01:00").out.strip()
    assert cli("job", at, "--json").json["due_at"].startswith("2126-01-31T07:00:00")
    assert "time zone" in cli("enqueue", "a", "--at", "2126-01-31T08:00:00", code=2).err
    cli("enqueue", "a", "--at", "tomorrow", code=2)
    cli("enqueue", "a", "--delay", "soon", code=2)


def test_a_duplicate_answers_the_job_that_is_there(cli: Cli) -> None:
    first = cli("enqueue", "a", '{"n":1}', "--unique-content")
    again = cli("enqueue", "a", '{"n":1}', "--unique-content", code=4)
    assert again.out == first.out
    assert "already" in again.err
    assert cli("enqueue", "a", '{"n":1}', "--unique-content", "--existing-ok", "--json").json["existing"] is True
    cli("enqueue", "a", "--unique-content", "--unique", "k", code=2)


@pytest.mark.parametrize("args", ["[1]", "{", "@/no/such/file", '"text"'])
def test_bad_arguments_stop_at_the_door(cli: Cli, args: str) -> None:
    assert cli("enqueue", "a", args, code=2).out == ""
    assert not cli.path.exists()


def test_arguments_may_come_from_a_file_and_have_a_size(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"big": 12345678901234567890123}')
    id = cli("enqueue", "a", f"@{tmp_path / 'args.json'}").out.strip()
    assert cli("job", id, "--json").json["args"] == {"big": 12345678901234567890123}
    (tmp_path / "args.json").write_text('{"big": "' + "x" * 300_000 + '"}')
    assert "300,0" in cli("enqueue", "a", f"@{tmp_path / 'args.json'}", code=2).err


def test_a_parent_that_is_not_there(cli: Cli) -> None:
    cli("enqueue", "a", "--after", "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", code=3)


def test_meta_is_shown_with_the_job(cli: Cli) -> None:
    id = cli("enqueue", "a", "--meta", '{"request": "r1"}').out.strip()
    assert cli("job", id, "--json").json["meta"] == {"request": "r1"}
    assert '"request": "r1"' in cli("job", id).out
    assert "meta" not in cli("job", cli("enqueue", "a").out.strip()).out
    assert "expected one JSON object" in cli("enqueue", "a", "--meta", "[1]", code=2).err
    assert "meta holds 'flow'" in cli("enqueue", "a", "--meta", '{"flow": 1}', code=2).err
    large = f'{{"x": "{"x" * 5_000}"}}'
    assert "meta takes 5,008 bytes, over 4,096" in cli("enqueue", "a", "--meta", large, code=2).err


def test_a_cost_of_zero_is_a_cost(cli: Cli) -> None:
    id = cli("enqueue", "a", "--cost", "0").out.strip()
    assert cli("job", id, "--json").json["cost"] == 0


def test_a_name_that_looks_misspelt_is_told(cli: Cli) -> None:
    cli("enqueue", "email.send", "--queue", "email")
    ran = cli("enqueue", "email.sned", "--queue", "emial")
    assert "did you mean 'email.send'" in ran.err
    assert "did you mean 'email'" in ran.err
    assert "did you mean" not in cli("enqueue", "wholly.different", "--queue", "zzz").err


def test_waiting_in_vain_still_answers_the_id_as_data(cli: Cli) -> None:
    ran = cli("enqueue", "t", "--wait", "10ms", "--json", code=7)
    assert ran.json["task"] == "t"
    assert cli("job", ran.json["id"], "--json").json["state"] == "ready"
    assert msgspec.json.decode(ran.err)["error"]["code"] == "result_timeout"
    cli("cancel", ran.json["id"])
    again = cli("enqueue", "t", "--id", ran.json["id"], "--wait", "1s", "--json", code=None)
    assert again.code != 0
    assert (again.json["id"], again.json["existing"]) == (ran.json["id"], True)
    assert msgspec.json.decode(again.err)["error"]["code"] == "job_cancelled"


def test_notes_are_part_of_the_answer_for_programs(cli: Cli) -> None:
    cli("enqueue", "send_mail")
    ran = cli("enqueue", "send_mial", "--json")
    assert ran.err == ""
    assert any("did you mean 'send_mail'" in note for note in ran.json["notes"])


def test_waiting_in_vain_advises_a_command(cli: Cli) -> None:
    ran = cli("enqueue", "t", "--wait", "10ms", code=7)
    assert f"limpet explain {ran.out.strip()}" in ran.err
    assert "job.explain()" not in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--delay", "5m", "--at", "2030-01-31T08:00:00+01:00"), "--delay and --at contradict"),
        (("--on-duplicate", "replace"), "--on-duplicate"),
        (("--priority", "urgent"), "--priority 'urgent' is unknown"),
        (("--id", "hello"), "--id 'hello' is not a job id"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_in_flags(cli: Cli, words: tuple[str, ...], says: str) -> None:
    ran = cli("enqueue", "t", *words, code=None)
    assert ran.code == 2
    assert says in ran.err
    assert "=" not in ran.err
