"""What rules hide, what counts as a secret in text, and what is told of a job."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.redaction.published import PublishedRule, redaction_from
from limpet.core.redaction.redaction import Redaction, Veil
from limpet.core.redaction.rule import MASK, MOST_RULES, Rules, parse_rule, parse_rules
from limpet.core.redaction.secrets import Secrets

SECRET = "c'\"0f1e2d3c4b5a\\é/&"


@pytest.mark.parametrize(
    ("rule", "hidden", "shown"),
    [
        ("password", ["args.password", "result.a.b.Password", "meta.password", "steps.s.password"], ["args.passwords"]),
        ("*token*", ["args.api_token", "checkpoint.TOKENS"], ["args.tok"]),
        ("card.number", ["args.card.number", "result.x.card.number"], ["args.number", "args.card.x.number"]),
        ("*.token", ["args.a.token"], ["args.token"]),
        ("args.card.number", ["args.card.number"], ["args.x.card.number", "result.card.number"]),
        ("args", ["args.any", "args.other"], ["result.any"]),
        ("result", ["result"], ["args.result"]),
        ("steps.charge", ["steps.charge"], ["steps.other"]),
        (r"args.a\.b", ["args.a.b"], []),
        (r"args.\*", [], ["args.any"]),
    ],
)
def test_a_rule_hides_what_it_names(rule: str, hidden: list[str], shown: list[str]) -> None:
    rules = Rules([parse_rule(rule)])
    paths = [("args", "a.b")] if "\\." in rule else [tuple(each.split(".")) for each in hidden]
    assert [path for path in paths if not rules.hides(path)] == []
    assert [each for each in shown if rules.hides(tuple(each.split(".")))] == []


@pytest.mark.parametrize("rule", ["", "a..b", ".a", "a.", "$.a", "args[0].x", "a\nb", "x" * 201, 5])
def test_what_is_no_rule_is_refused(rule: Any) -> None:
    with pytest.raises(InvalidOption, match="redact holds"):
        parse_rule(rule)


def test_a_list_of_rules_has_a_bound() -> None:
    assert len(parse_rules([f"key{n}" for n in range(MOST_RULES)])) == MOST_RULES
    with pytest.raises(InvalidOption, match="201 rules"):
        parse_rules([f"key{n}" for n in range(MOST_RULES + 1)])
    with pytest.raises(InvalidOption, match="is a list"):
        parse_rules("password")


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        repr(SECRET),
        f"KeyError: {SECRET!r}",
        msgspec.json.encode({"a": SECRET}).decode(),
        msgspec.json.encode(f"the key {SECRET!r}").decode(),
        "GET /?t=c%27%220f1e2d3c4b5a%5C%C3%A9%2F%26",
        f"{SECRET[:12]}…",
        f"{SECRET[:9]}... and more",
    ],
)
def test_a_secret_is_found_however_it_is_written(text: str) -> None:
    found = Secrets([SECRET]).out_of(text)
    assert "0f1e2d" not in found
    assert MASK in found


def test_a_long_secret_is_found_in_parts_and_by_its_lines() -> None:
    lines = [sha256(bytes([n])).hexdigest() for n in range(5)]
    pem = "\n".join(["-----BEGIN-----", *lines, "-----END-----"])
    secrets = Secrets([pem])
    assert secrets.out_of(f"line: {lines[3]}") == f"line: {MASK}"
    assert secrets.out_of(f"cut {pem[:200]}") == f"cut {MASK}"
    assert secrets.out_of(f"{pem[-100:]} cut") == f"{MASK} cut"


def test_secrets_that_begin_alike_are_both_found() -> None:
    first, second = ("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + sha256(seed).hexdigest() for seed in (b"a", b"b"))
    secrets = Secrets([first, second])
    assert secrets.out_of(f"{first} {second} {second[:60]}") == f"{MASK} {MASK} {MASK}"


def test_what_stands_in_any_text_is_no_secret() -> None:
    secrets = Secrets(["abc", 2026, "", 1.5])
    assert not secrets
    assert secrets.out_of("abc 2026 1.5") == "abc 2026 1.5"
    numbers = Secrets([4_111_111_111])
    assert numbers.out_of_all({"card": 4_111_111_111, "is": True, "text": "4111111111"}) == {
        "card": MASK,
        "is": True,
        "text": MASK,
    }


def view(**fields: Any) -> JobView:
    usual = {"args": msgspec.json.encode({"pin": SECRET, "note": f"pin {SECRET}", "n": 1})}
    return JobView(
        b"\x01" * 16, State.dead, Lane("q", "login"), Policy(), **{**usual, **fields}, attempt=1, lost=0,
        enqueued_at_ms=1, due_at_ms=1,
    )  # fmt: skip


def veil(*rules: str, task: str = "", **fields: Any) -> Veil:
    return Redaction({task: list(map(parse_rule, rules))}).of(view(**fields))


def test_what_a_path_hides_is_looked_for_in_all_else() -> None:
    shown = veil(
        "pin",
        result=msgspec.json.encode([SECRET, {"pin": "other"}]),
        meta=msgspec.json.encode({"flow": {"pin": 1}, "said": SECRET}),
        reason=f"bad {SECRET}",
        unique=f"key {SECRET}",
        tags=(f"tag {SECRET}",),
        notes=(
            Note("log", "1", msgspec.json.encode(f"tried {SECRET}")),
            Note("step", "s", msgspec.json.encode({"kind": "step", "place": 1, "value": {"pin": "third", "n": 2}})),
            Note("progress", "", b'{"done":1,"total":2,"message":"third and other"}'),
        ),
    ).view
    assert msgspec.json.decode(shown.args) == {"pin": MASK, "note": f"pin {MASK}", "n": 1}
    assert shown.result is not None
    assert msgspec.json.decode(shown.result) == [MASK, {"pin": MASK}]
    assert msgspec.json.decode(shown.meta) == {"flow": {"pin": 1}, "said": MASK}
    assert (shown.reason, shown.unique, shown.tags) == (f"bad {MASK}", f"key {MASK}", (f"tag {MASK}",))
    log, step, progress = (msgspec.json.decode(note.body) for note in shown.notes)
    assert (log, step["value"], step["place"]) == (f"tried {MASK}", {"pin": MASK, "n": 2}, 1)
    assert progress == {"done": 1, "total": 2, "message": f"{MASK} and {MASK}"}


def test_a_rule_of_a_task_is_for_its_jobs_alone() -> None:
    assert b"0f1e2d" not in veil("args.pin", task="login").view.args
    assert b"0f1e2d" in veil("args.pin", task="logout").view.args
    assert veil().view == type(veil().view)(**msgspec.structs.asdict(view()))


def test_arguments_that_cannot_be_read_are_hidden_as_a_whole() -> None:
    assert msgspec.json.decode(veil("pin", args=b'{"pin":"x').view.args) == MASK
    assert msgspec.json.decode(veil("pin", args=b'{"pin":null}').view.args) == {"pin": None}


@pytest.mark.parametrize("depth", [100, 300, 400, 440, 460, 470, *range(474, 500), 600, 900])
def test_what_is_nested_too_deeply_is_hidden_as_a_whole(depth: int) -> None:
    """A client can send it: it must not keep other jobs of a list from being shown, nor end a worker."""
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    args = b'{"password":"hunter22","b":%b}' % nested
    redaction = Redaction({"": [parse_rule("password")]})
    view = JobView(b"", State.ready, Lane("q", "t"), Policy(), args, 0, 0, 0, 0, meta=b'{"m":%b}' % nested)
    shown = redaction.job(view)
    assert b"hunter22" not in shown.args
    assert shown.meta
    assert redaction.everywhere.masked("args", msgspec.json.decode(nested))


def test_programs_add_to_the_stored_rules() -> None:
    rules = [PublishedRule("pin"), PublishedRule("args.note", task="login"), PublishedRule("n", removed=True)]
    unreadable = msgspec.structs.replace(PublishedRule("x").control(), value=b"[]")
    shown = redaction_from([*(rule.control() for rule in rules), unreadable]).of(view()).view
    assert msgspec.json.decode(shown.args) == {"pin": MASK, "note": MASK, "n": 1}
