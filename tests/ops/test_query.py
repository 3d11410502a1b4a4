"""The query language: what each line means, and how a wrong one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.jobs.state import FINISHED, STATES, WAITING, State
from limpet.core.jobs.view import Query, Term
from limpet.ops.query import FIELDS, InvalidQuery, looks_like_query, parse_query, query_text


def test_the_line_of_the_documentation_means_what_it_says() -> None:
    query = parse_query(
        "state:dead queue:mail task:send_* tag:eu args.user.id:42 error:Timeout age>1h attempt>=3 -task:noop"
    )
    assert query.states == frozenset({State.dead})
    assert query.terms == (
        Term("queue", "mail"),
        Term("task", "send_*"),
        Term("tag", "eu"),
        Term("args.user.id", "42"),
        Term("error", "Timeout"),
        Term("age", "3600000", ">"),
        Term("attempt", "3", ">="),
        Term("task", "noop", "=", negated=True),
    )


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("", None),
        ("state:dead,cancelled", {State.dead, State.cancelled}),
        ("state:pending", set(WAITING)),
        ("state:completed", {State.succeeded}),
        ("-state:dead", set(STATES) - {State.dead}),
        ("state:succeeded,dead,cancelled -state:dead", set(FINISHED) - {State.dead}),
        ("state:READY", {State.ready}),
    ],
)
def test_states(text: str, states: set[State] | None) -> None:
    assert parse_query(text).states == states


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ('error:"connection reset"', Term("error", "connection reset")),
        (r'error:"say \"no\""', Term("error", 'say "no"')),
        ("!queue:mail", Term("queue", "mail", negated=True)),
        ("queue=mail", Term("queue", "mail")),
        ("attempt:>2", Term("attempt", "2", ">")),
        ("priority<=high", Term("priority", "3", "<=")),
        ("priority:0", Term("priority", "0")),
        ("age<90s", Term("age", "90000", "<")),
        ("args.url:http://x/?a=b", Term("args.url", "http://x/?a=b")),
        ('tenant:""', Term("tenant", "")),
    ],
)
def test_conditions(text: str, term: Term) -> None:
    assert parse_query(text).terms == (term,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("queu:mail", "did you mean 'queue'"),
        ("state:deaad", "did you mean 'dead'"),
        ("wholly_unknown:1", "known: "),
        ("Timeout", "error:Timeout"),
        ("queue:", "has no value"),
        ("age:1h", "age>1h"),
        ("age>soon", "not an age"),
        ("attempt>=many", "a number"),
        ("priority:urgent", "critical"),
        ("priority:12", "most urgent"),
        ("queue>mail", "cannot be compared"),
        ("state>dead", "no order"),
        ("args.:1", "needs a path"),
        ("args.amount>=10", "not compared"),
        ("state:dead state:ready", "comma"),
        ('error:"open', "not a condition"),
    ],
)
def test_a_wrong_line_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(InvalidQuery, match=says.replace("(", r"\(")) as caught:
        parse_query(text)
    assert caught.value.fix


def test_an_id_is_not_taken_for_a_condition() -> None:
    assert not looks_like_query("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b")
    assert looks_like_query("state:dead")
    assert looks_like_query("-task:noop")
    assert looks_like_query("age>1h")


values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
terms = st.one_of(
    st.builds(
        Term, st.sampled_from(["queue", "task", "tag", "error", "args.a.b"]), values, st.just("="), st.booleans()
    ),
    st.builds(
        lambda value, op: Term("attempt", str(value), op),
        st.integers(0, 99),
        st.sampled_from(["<", "<=", ">", ">=", "="]),
    ),
    st.builds(lambda value: Term("age", str(value), ">"), st.integers(1, 10**9)),
)


@pytest.mark.parametrize("value", ["<", ">", "<=x", ">1h", "=", "-x", '"', "a b", ""])
def test_a_value_that_looks_like_a_sign_is_quoted(value: str) -> None:
    query = Query(None, (Term("queue", value),))
    assert parse_query(query_text(query)) == query


@given(st.lists(terms, max_size=5), st.sets(st.sampled_from(STATES), min_size=1) | st.none())
def test_a_query_written_down_means_the_same_again(conditions: list[Term], states: set[State] | None) -> None:
    query = Query(None if states is None else frozenset(states), tuple(conditions))
    assert parse_query(query_text(query)) == query


def test_every_field_is_known_by_its_own_name() -> None:
    for field in FIELDS:
        value = {"state": "dead", "age": "5m"}.get(field, "1")
        parse_query(f"{field.replace('<path>', 'x')}{'>' if field == 'age' else ':'}{value}")
