"""Terms mean on every engine what they mean on SQLite: the same jobs, asked the same question, the same answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.stores.match import exact_of, match_of
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock

ARGS = [
    '{"n":1,"f":1.5,"big":100000.0,"huge":1e+20,"yes":true,"no":false,"nil":null,"s":"a*b"}',
    '{"n":{"m":"deep","list":[1,"x",null]},"s":"[a]?","empty":""}',
    '{"n":[1,2],"s":"Grüße","quoted":"\\"x\\""}',
    '{"n":123456789012345678,"f":0.1,"tiny":1e-07,"neg":-3}',
]
PATHS = ["n", "f", "big", "huge", "yes", "no", "nil", "s", "n.m", "n.list", "empty", "quoted", "tiny", "neg", "s.x"]
VALUES = ["1", "0", "1.5", "0.1", "*", "1*", "a*b", "a?b", "[a]?", "*e*", "", "1.0e+20", "100000.0", "1.0e-07", "-3"]
VALUES += [
    "[1,2]",
    '{"m":"deep","list":[1,"x",null]}',
    '[1,"x",null]',
    "deep",
    "d*p",
    '"x"',
    "Grüße",
    "123456789012345678",
]
TEXTS = [
    "mail",
    "m*",
    "*",
    "M*",
    "send",
    "acme",
    "a.me",
    "vip",
    "v*p",
    "report:7",
    "*:*",
    "broke",
    "BROKE",
    "it b",
    "[x]",
    "",
]
NUMBERS = ["0", "1", "3", "5", "9", "high", "4000", "-1"]
OPS = st.sampled_from(["<", "<=", ">", ">=", "="])


def term(field: str, values: list[str]) -> st.SearchStrategy[Term]:
    return st.builds(Term, st.just(field), st.sampled_from(values), negated=st.booleans())


TERMS = st.one_of(
    *(term(f"args.{path}", VALUES) for path in PATHS),
    *(term(field, TEXTS) for field in ("queue", "task", "tenant", "cause", "tag", "unique", "error")),
    term("state", [state.value for state in State]),
    *(
        st.builds(
            Term, st.just(field), st.sampled_from([n for n in NUMBERS if field == "priority" or n != "high"]), OPS
        )
        for field in ("priority", "attempt", "lost", "age")
    ),
)


async def shelf(bench: Bench) -> None:
    """Jobs that differ in everything a term can ask for."""
    await bench.put(
        bench.job(queue="mail", task="send", tenant="acme", priority=3, tags=("vip", "[x]"), args=ARGS[0].encode()),
        bench.job(queue="mail", task="send", priority=9, args=ARGS[1].encode()),
        bench.job(task="report", tenant="acme", unique=Unique("report:7"), args=ARGS[2].encode(), flow=b"f" * 16),
        bench.job(task="later", delay_ms=60_000, tags=("vip",), args=ARGS[3].encode()),
        bench.job(task="dies", priority=0),
    )
    hand = bench.hand(tasks=("dies",))
    await hand.bury(await hand.take())
    bench.clock.advance(4_000)
    await bench.add(task="young")


async def test_terms_find_what_they_find_on_sqlite() -> None:
    store = SqliteStore(None)
    bench = Bench(store, Clock())
    await shelf(bench)
    jobs = await bench.everything()
    found: dict[Term, list[bytes]] = {}

    @given(TERMS)
    def check(term: Term) -> None:
        found[term] = [job.id for job in jobs if match_of([term], bench.clock.now_ms)(job)]

    check()
    for each, ids in found.items():
        query = Query(terms=(each,), newest_first=False)
        page = await store.find(query, now_ms=bench.clock.now_ms)
        assert [job.id for job in page.jobs] == ids, each
    await store.close()


async def test_ids_and_flows_are_compared_whole() -> None:
    store = SqliteStore(None)
    bench = Bench(store, Clock())
    await shelf(bench)
    for job in await bench.everything():
        assert match_of([Term("id", id_text(job.id))], 0)(job)
        assert match_of([Term("flow", id_text(b"f" * 16))], 0)(job) == (job.flow is not None)
    await store.close()


def test_what_cannot_be_searched_by_is_refused() -> None:
    for wrong in (Term("colour", "red"), Term("attempt", "many"), Term("age", "1h"), Term("id", "x")):
        with pytest.raises(InvalidOption):
            match_of([wrong], 0)


def test_one_value_is_known_from_the_terms() -> None:
    assert exact_of([Term("task", "t"), Term("queue", "mail")], "queue") == "mail"
    assert exact_of([Term("queue", "mail", negated=True)], "queue") is None
    assert exact_of([Term("queue", "m*")], "queue") is None
