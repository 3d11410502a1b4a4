"""The query language: what each line means, and how a wrong one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.jobs.state import FINISHED, STATES, WAITING, State
from limpet.core.jobs.view import Query, Term
from limpet.ops.query import FIELDS, InvalidQuery, line_of, looks_like_query, parse_query, query_text


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
        ("args.n>5", Term("args.n", "5", ">")),
        ("args.n<=-2.5e3", Term("args.n", "-2.5e3", "<=")),
        ("!args.user.age>=18", Term("args.user.age", "18", ">=", negated=True)),
        ("args.n:>5", Term("args.n", "5", ">")),
        ("finished<1h", Term("finished", "3600000", "<")),
        ("started>=10m", Term("started", "600000", ">=")),
        ("due<2d", Term("due", "172800000", "<")),
        ("timeout", Term("word", "timeout")),
        ("-timeout", Term("word", "timeout", negated=True)),
        ("email.send", Term("word", "email.send")),
        ('"not found: x=1"', Term("word", "not found: x=1")),
        ('!"a b"', Term("word", "a b", negated=True)),
        ("word:timeout", Term("word", "timeout")),
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
        ("http://x", "'http' is not a field"),
        ("http://x", "quote text that you search for"),
        ("timeout> x", "has no value"),
        ('""', "a part of a task or an error"),
        ("-", "not a condition"),
        ("status:dead", "did you mean 'state'"),
        ("created<1h", "did you mean 'age'"),
        ("queue:", "has no value"),
        ("age:1h", "age>1h"),
        ("age>soon", "takes a duration"),
        ("attempt>=many", "a number"),
        ("priority:urgent", "critical"),
        ("priority:12", "most urgent"),
        ("queue>mail", "cannot be compared"),
        ("state>dead", "no order"),
        ("args.:1", "needs a path"),
        ("args.amount>=ten", "args.amount:ten"),
        ("args.amount>=", "has no value"),
        ("args.amount>1e999", "compares numbers"),
        ("args.day>2026-01-01", "compares numbers"),
        ("finished:1h", "finished>1h"),
        ("finished<yesterday", "finished<2d"),
        ("state:dead state:ready", "comma"),
        ('error:"open', "not a condition"),
    ],
)
def test_a_wrong_line_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(InvalidQuery, match=says.replace("(", r"\(")) as caught:
        parse_query(text)
    assert caught.value.fix


def test_words_are_looked_for_beside_conditions() -> None:
    query = parse_query('state:dead timeout "connection reset" queue:mail')
    assert query.states == frozenset({State.dead})
    assert query.terms == (Term("word", "timeout"), Term("word", "connection reset"), Term("queue", "mail"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["state:dead", "error:not found"], 'state:dead error:"not found"'),
        (["-error:not found"], '-error:"not found"'),
        (["connection reset", "mail"], '"connection reset" mail'),
        (["state:dead queue:mail"], "state:dead queue:mail"),
        (['error:"not found" mail'], 'error:"not found" mail'),
        (["timeout"], "timeout"),
    ],
)
def test_quotes_that_a_shell_took_off_are_put_back(words: list[str], line: str) -> None:
    assert line_of(words) == line


def test_an_id_is_not_taken_for_a_condition() -> None:
    assert not looks_like_query("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b")
    assert looks_like_query("state:dead")
    assert looks_like_query("-task:noop")
    assert looks_like_query("age>1h")


TIMES = ["age", "finished", "started", "due"]
values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
terms = st.one_of(
    st.builds(
        Term,
        st.sampled_from(["queue", "task", "tag", "error", "word", "args.a.b"]),
        values,
        st.just("="),
        st.booleans(),
    ),
    st.builds(
        lambda value, op: Term("attempt", str(value), op),
        st.integers(0, 99),
        st.sampled_from(["<", "<=", ">", ">=", "="]),
    ),
    st.builds(lambda field, value: Term(field, str(value), ">"), st.sampled_from(TIMES), st.integers(1, 10**9)),
    st.builds(lambda value: Term("args.n", str(value), ">="), st.integers() | st.floats(-1e9, 1e9)),
)


@pytest.mark.parametrize("value", ["<", ">", "<=x", ">1h", "=", "-x", '"', "a b", ""])
def test_a_value_that_looks_like_a_sign_is_quoted(value: str) -> None:
    for field in ("queue", *(["word"] if value else [])):
        query = Query(None, (Term(field, value),))
        assert parse_query(query_text(query)) == query


@given(st.lists(terms, max_size=5), st.sets(st.sampled_from(STATES), min_size=1) | st.none())
def test_a_query_written_down_means_the_same_again(conditions: list[Term], states: set[State] | None) -> None:
    query = Query(None if states is None else frozenset(states), tuple(conditions))
    assert parse_query(query_text(query)) == query


def test_every_field_is_known_by_its_own_name() -> None:
    for field in FIELDS:
        value = {"state": "dead"}.get(field, "5m" if field in TIMES else "1")
        parse_query(f"{field.replace('<path>', 'x')}{'>' if field in TIMES else ':'}{value}")
