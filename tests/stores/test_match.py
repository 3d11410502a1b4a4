"""Terms as a filter: whole ids, what is refused, which value a query allows."""

from __future__ import annotations

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import Term
from limpet.stores.match import exact_of, match_of
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.stores.terms import shelf


async def test_ids_and_flows_are_compared_whole() -> None:
    store = SqliteStore(None)
    bench = Bench(store, Clock())
    await shelf(bench)
    for job in await bench.everything():
        assert match_of([Term("id", id_text(job.id))], 0)(job)
        assert match_of([Term("flow", id_text(b"f" * 16))], 0)(job) == (job.flow is not None)
    await store.close()


def test_what_cannot_be_searched_by_is_refused() -> None:
    for wrong in (
        Term("colour", "red"),
        Term("attempt", "many"),
        Term("age", "1h"),
        Term("id", "x"),
        Term("args.n", "x", ">"),
    ):
        with pytest.raises(InvalidOption):
            match_of([wrong], 0)


def test_one_value_is_known_from_the_terms() -> None:
    assert exact_of([Term("task", "t"), Term("queue", "mail")], "queue") == "mail"
    assert exact_of([Term("queue", "mail", negated=True)], "queue") is None
    assert exact_of([Term("queue", "m*")], "queue") is None
