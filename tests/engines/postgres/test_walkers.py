"""Everything at once: nobody holds what another holds, nothing stale is done, no limit is passed, nothing is lost."""

from __future__ import annotations

import pytest

from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.engines.postgres.walkers import MIXES, heal, walk_together
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import in_matrix

PARTS = sorted(MIXES.keys() - {"everything"})


def deadlocks(place: Namespace) -> int:
    return int(place.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mix", ["everything", *in_matrix("a part of everything, walked more often", *PARTS)])
async def test_many_who_walk_at_once_leave_everything_in_order(mix: str) -> None:
    async with fresh_namespace(shared(POSTGRES)) as place:
        before = deadlocks(place)
        world = await walk_together(place, 0, MIXES[mix], people=10, steps=45)
        await heal(world)
        assert deadlocks(place) == before
