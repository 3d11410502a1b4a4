"""`dead review` at a real pseudo-terminal, and what it says elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query
from limpet.stores.asking import find_all
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.cli.pseudo import COLUMNS, CTRL_C, CTRL_D, OnTerminal
from tests.ops.making import job, kill

DNS, TLS = "cause-DnsError", "cause-TlsError"
KEYS, REASON, NEXT = "(? shows the keys): ", "to go back): ", "--- 2 of 2 ---"
LONG = "the certificate of mail.example has expired " * 4


async def two(store: Store) -> None:
    await kill(store, *(job(args={"to": to}) for to in ("a", "b", "c")), error="DnsError", message="no such host")
    await kill(store, job("pdf", args={"page": {"text": "x" * 200}}), error="TlsError", message=LONG)


def states(cli: Cli) -> dict[str, int]:
    async def count(store: Store) -> dict[str, int]:
        found = [view.state for view in await find_all(store, Query())]
        return {state.value: found.count(state) for state in State if state in found}

    return cli.seed(count)


def lines(cli: Cli) -> list[tuple[str, str | None]]:
    return [(one["kind"], one["reason"]) for one in cli("audit", "--json").json["entries"]]


@pytest.fixture
def review(cli: Cli) -> Iterator[Callable[..., OnTerminal]]:
    made: list[OnTerminal] = []

    def start(*words: str, **variables: Any) -> OnTerminal:
        made.append(OnTerminal(f"sqlite:///{cli.path}?sync=normal", "dead", "review", *words, **variables))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_person_is_walked_through_the_causes_worst_first(cli: Cli, review: Callable[..., OnTerminal]) -> None:
    cli.seed(two)
    person = review()
    first = person.answered(KEYS, "o")
    for said in ("1 of 2", "3 dead, open", "DnsError: no such host", "per hour   3;", '"to": "c"', "Traceback: …"):
        assert said in first
    assert person.answered("none): ", "ada")
    assert "would be open, assigned to ada" in person.answered(REASON, "her service")
    assert "open, assigned to ada" in person.answered(KEYS, "r")
    assert "this will retry job" in person.answered(REASON, "is it back?")
    again = person.answered(KEYS, "ra")
    assert "retry: 1 retried" in again
    assert "2 dead, open, assigned to ada" in again, "it is shown as it is now"
    assert "  ready\n" in again, "and what has become of the sample"
    assert "this will retry 2 jobs" in person.answered(REASON, "it is back")
    person.answered("retry 2 jobs? [y/N]: ", "y")
    second = person.answered(KEYS, "f")
    assert NEXT in second
    assert "TlsError" in second
    shown = [line for line in (first + again + second).split("\n") if not line.startswith("working")]  # drawn over
    assert max(map(len, shown)) <= COLUMNS
    person.answered(REASON, "")
    ended = person.ended(0)
    assert "2 of 2 causes seen; 1 × assign, 2 × retry, 1 × resolve" in ended
    assert states(cli) == {"ready": 3, "dead": 1}
    assert [line for line in lines(cli) if line[0] != "job.retry"] == [
        ("cause.assign", "her service"),
        ("cause.resolve", None),
    ]
    assert [why for kind, why in lines(cli) if kind == "job.retry"] == ["is it back?", "it is back", "it is back"]
    assert "no cause of dead jobs waits" in review().ended(0)


def test_it_asks_before_it_destroys_and_spares_what_dies_meanwhile(cli: Cli, review: Callable[..., OnTerminal]) -> None:
    cli.seed(two)
    person = review("--queue", "mail")
    person.answered(KEYS, "da")
    assert "this will discard 3 jobs for good" in person.answered(REASON, "old")
    person.answered("discard 3 jobs for good? [y/N]: ", "")
    assert "nothing was changed" in person.answered(KEYS, "d")
    person.answered(REASON, CTRL_D)
    assert "nothing was changed" in person.answered(KEYS, "da")
    assert (states(cli), lines(cli)) == ({"dead": 4}, [])
    person.answered(REASON, "old")
    cli.seed(one_more)
    person.answered("discard 3 jobs for good? [y/N]: ", "y")
    assert NEXT in person.answered(KEYS, "q")
    assert "1 × discard" in person.ended(0)
    assert states(cli) == {"dead": 2}
    assert lines(cli) == [("job.discard", "old")] * 3


async def one_more(store: Store) -> str:
    return id_text((await kill(store, job(args={"to": "d"}), error="DnsError", message="no such host"))[0])


def test_the_sample_is_edited_in_the_editor(cli: Cli, review: Callable[..., OnTerminal], tmp_path: Path) -> None:
    id = cli.seed(one_more)
    person = review(VISUAL="sed -i s/d/e/")
    person.answered(KEYS, "e")
    assert 'to: "e"  (was "d")' in person.answered(REASON, "typing error")
    person.answered(f"retry job {id} so? [y/N]: ", "y")
    ended = person.ended(0)
    assert f"tried      {id}  ready" in ended
    assert "none of its jobs is dead any more" in ended
    found = cli("job", id, "--json").json
    assert (found["state"], found["args"]) == ("ready", {"to": "e"})


def test_each_key_says_what_it_says_of_the_cause(cli: Cli, review: Callable[..., OnTerminal]) -> None:
    cli.seed(two)
    person = review()
    person.answered(KEYS, "n")
    person.answered("note: ", "see ticket 7")
    person.answered(REASON, "")
    assert "'zz' is no key" in (person.answered(KEYS, "zz") + person.answered(KEYS, "z"))
    person.answered("until when: ", "soon")
    assert "neither a duration nor an instant" in person.answered(KEYS, "l")
    assert "note       see ticket 7" in person.answered(KEYS, "z")
    person.answered("until when: ", "2h")
    assert "would be snoozed until" in person.answered(REASON, "they know")
    assert NEXT in person.answered(KEYS, "x")
    person.answered("team: ", "network team")
    person.answered(REASON, "since noon")
    assert "1 × note, 1 × snooze, 1 × escalate" in person.ended(0)
    found = {one["cause"]: one for one in cli("dead", "causes", "--json").json["causes"]}
    assert (found[DNS]["status"], found[DNS]["note"]) == ("snoozed", "see ticket 7")
    assert found[TLS]["assignee"] == "network team"
    escalated = review("--assignee", "network team")
    assert "1 of 1" in escalated.answered(KEYS, "a")
    escalated.answered(REASON, CTRL_D)
    escalated.answered(KEYS, CTRL_D)
    assert "nothing was decided" in escalated.ended(0)


def test_what_another_person_has_said_meanwhile_is_shown_first(cli: Cli, review: Callable[..., OnTerminal]) -> None:
    cli.seed(two)
    person = review()
    person.answered(KEYS, "a")
    person.asked(REASON)
    cli("dead", "note", DNS, "wait for me")
    person.answered(REASON, "mine")
    said = person.answered(KEYS, "f")
    assert "changed meanwhile, and is at version 1" in said
    assert "note       wait for me" in said
    person.asked(REASON)
    cli("dead", "acknowledge", DNS)
    person.answered(REASON, "fixed")
    said = person.answered(KEYS, "s")
    assert "it is acknowledged by now, and passed over" in said
    assert NEXT in said
    assert "nothing was decided" in person.ended(0)


@pytest.mark.parametrize("where", [KEYS, REASON, "[y/N]: "])
def test_ctrl_c_leaves_at_any_question(cli: Cli, review: Callable[..., OnTerminal], where: str) -> None:
    cli.seed(two)
    person = review()
    for question, answer in ((KEYS, "da"), (REASON, "old"), ("[y/N]: ", "y")):
        person.answered(question, CTRL_C if question == where else answer)
        if question == where:
            break
    ended = person.ended(130)
    assert ended.startswith("^C")
    assert "review: 1 of 2 causes seen; nothing was decided" in ended
    assert ended.endswith("interrupted\n")
    assert "Traceback" not in ended
    assert (states(cli), lines(cli)) == ({"dead": 4}, [])


@pytest.mark.parametrize("flag", [(), ("--json",)])
def test_elsewhere_it_names_the_commands_to_use(cli: Cli, flag: tuple[str, ...]) -> None:
    cli.seed(two)
    error = cli("dead", "review", *flag, code=2).err
    assert "no terminal" in error if not flag else "no JSON" in error
    for command in ("limpet dead causes", "limpet dead cause CAUSE", "limpet dead retry", "discard", "escalate"):
        assert command in error
