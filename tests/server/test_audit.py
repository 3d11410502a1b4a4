"""The audit log over HTTP: chosen by kind, person and job, and walked back page by page."""

from __future__ import annotations

from limpet.core.jobs.ids import id_text
from limpet.ops import Operator
from limpet.server import Api
from limpet.server.route import PREFIX
from limpet.stores.base import Store
from tests.ops.making import job, put
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on


async def test_lines_are_chosen_and_walked_back(everywhere: Store) -> None:
    first, second = map(id_text, await put(everywhere, job(), job()))
    ada, bob = Operator(everywhere, "ada"), Operator(everywhere, "token:bob")
    await ada.cancel([first], reason="one")
    await bob.pause("all")
    await bob.cancel([second], reason="two")
    await ada.resume("all")
    async with Api(app_on(everywhere), settings=GENEROUS, local=True).lifespan() as api:
        client = Client(api)

        async def kinds(query: str) -> list[tuple[str, str]]:
            lines = (await client.get(f"{PREFIX}/audit?{query}")).json["audit"]
            return [(line["kind"], line["actor"]) for line in lines]

        cancels = [("job.cancel", "ada"), ("job.cancel", "token:bob")]
        assert await kinds("kind=job") == await kinds("kind=job.") == await kinds("kind=job.cancel") == cancels
        assert await kinds("kind=jo") == []
        assert [actor for _, actor in await kinds("actor=BOB")] == ["token:bob"] * 2
        assert await kinds(f"job={second[-8:]}") == cancels[1:]
        (newest,) = (await client.get(f"{PREFIX}/audit?limit=1&kind=job")).json["audit"]
        assert await kinds(f"limit=1&kind=job&before={newest['seq']}") == cancels[:1]
        refusal = await client.get(f"{PREFIX}/audit?after=0&kind=job")
        assert (refusal.status, "after" in refusal.json["detail"]) == (422, True)
