"""What an error is to a shell and to an HTTP client; and what names no job is the same error everywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from limpet import AmbiguousId, FlowNotFound, JobNotFound, LimpetError, StoreTimeout, StoreUnreachable, http_status
from limpet.core.jobs.ids import id_text
from limpet.ops import Agents, Flows, Operator, Waits
from limpet.ops.codes import meaning_of
from limpet.stores.base import Store
from tests.ops.making import job, put

UNKNOWN = "019a0000-0000-7000-8000-000000000000"

Ask = Callable[[Store, str], Awaitable[Any]]

ASKED: dict[str, Ask] = {
    "job": lambda store, id: Operator(store, "ada").job(id),
    "explain": lambda store, id: Operator(store, "ada").explain(id),
    "cancel": lambda store, id: Operator(store, "ada").cancel([id]),
    "retry": lambda store, id: Operator(store, "ada").retry([id]),
    "signal": lambda store, id: Waits(store, "ada").signal(id, "paid"),
    "approve": lambda store, id: Waits(store, "ada").approve(id),
    "heartbeat": lambda store, id: Agents(store).heartbeat(id, 1),
    "flow": lambda store, id: Flows(store, "ada").resolve(id),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("id", [UNKNOWN, "not-an-id", "ffff", "x", "019a0000-0000-7000-8000"])
async def test_what_names_no_job_is_one_error(store: Store, name: str, id: str) -> None:
    await put(store, job())
    with pytest.raises(JobNotFound) as caught:
        await ASKED[name](store, id)
    assert (meaning_of(caught.value).exit, http_status(caught.value)) == (3, 404)
    assert isinstance(caught.value, FlowNotFound) == (name == "flow")


async def test_an_end_that_fits_two_ids_is_another_error(store: Store) -> None:
    one, two = job(), job()
    twin = bytes([one.id[0] ^ 1]) + one.id[1:]
    await put(store, one, two)
    await put(store, replace(job(), id=twin))
    with pytest.raises(AmbiguousId) as caught:
        await Operator(store, "ada").job(id_text(one.id)[-12:])
    assert http_status(caught.value) == 422
    assert not isinstance(caught.value, JobNotFound)


def test_an_error_of_others_has_no_http_status() -> None:
    with pytest.raises(TypeError, match="http_status takes a LimpetError, got ValueError: catch LimpetError"):
        http_status(cast(LimpetError, ValueError("x")))


def test_a_code_that_is_not_in_the_table_counts_as_its_family() -> None:
    class Newer(StoreTimeout):
        code = "newer"

    class Stranger(LimpetError):
        code = "stranger"

    assert (meaning_of(Newer("x")).exit, http_status(Newer("x"))) == (5, 503)
    assert http_status(Stranger("x")) == 500
    assert meaning_of(StoreUnreachable("x")).title == "Store unreachable"
