"""Behaviours of a store that other processes can open: its jobs outlive every handle.

They are apart from the others since an engine that lives in one handle cannot have them: an engine that is
shared (`Features.shared`) imports them beside the rest, `from limpet_contract.behaviours.sharing import *`.
"""

from __future__ import annotations

from limpet.core.jobs.state import State
from limpet_contract.behaviours.fixture import bench
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

__all__ = ["TestSharing", "bench"]


@asynchronous
class TestSharing:
    async def test_an_engine_with_these_behaviours_says_that_it_is_shared(self, bench: Bench) -> None:
        assert bench.store.features.shared

    async def test_a_store_keeps_its_jobs_when_a_handle_closes(self, bench: Bench) -> None:
        id = await bench.add()
        other = await bench.other()
        await other.store.close()
        await other.store.close()
        assert await bench.state(id) is State.ready
        assert await (await bench.other()).hand().ids() == [id]

    async def test_a_closed_handle_opens_again_on_the_next_verb(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.store.close()
        assert await bench.state(id) is State.ready
