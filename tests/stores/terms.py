"""A shelf of jobs that differ in everything a query can ask for, and every kind of term that can be asked of it."""

from __future__ import annotations

from hypothesis import strategies as st

from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Term
from limpet_contract.bench import Bench

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
    "it_b",
    "%",
    "I*E",
    "[x]",
    "",
]
COMPARED = ["0", "1", "-3", "-2.5", "1.5", "0.1", "1e5", "1e-7", "123456789012345677", "123456789012345678", "1e20"]
NUMBERS = ["0", "1", "3", "5", "9", "high", "4000", "56000", "-1"]
OPS = st.sampled_from(["<", "<=", ">", ">=", "="])


def term(field: str, values: list[str]) -> st.SearchStrategy[Term]:
    return st.builds(Term, st.just(field), st.sampled_from(values), negated=st.booleans())


TERMS = st.one_of(
    *(term(f"args.{path}", VALUES) for path in PATHS),
    *(
        st.builds(Term, st.just(f"args.{path}"), st.sampled_from(COMPARED), OPS.filter(lambda op: op != "="))
        for path in PATHS
    ),
    *(term(field, TEXTS) for field in ("queue", "task", "tenant", "cause", "tag", "unique", "error", "word")),
    term("state", [state.value for state in State]),
    *(
        st.builds(
            Term,
            st.just(field),
            st.sampled_from([n for n in NUMBERS if field == "priority" or n != "high"]),
            OPS,
            st.booleans(),
        )
        for field in ("priority", "attempt", "lost", "age", "finished", "started", "due")
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
    await bench.add(task="runs", priority=0)
    await bench.hand(tasks=("runs",)).take()
    bench.clock.advance(4_000)
    await bench.add(task="young")
    dropped = await bench.add(task="dropped", args=b'{"n":5}')
    await bench.store.cancel([dropped], "it is no longer wanted", now_ms=bench.clock.now_ms)
