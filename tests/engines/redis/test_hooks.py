"""Jobs of hooks lie in the lists and indexes of Redis like all others."""

from __future__ import annotations

from limpet.core.jobs.state import State
from limpet_contract.behaviours.hooks import once, publish, told
from tests.engines.redis.place import Place


async def test_a_job_that_comes_with_one_that_ends_at_once_lies_in_its_list_once() -> None:
    place = Place()
    await publish(place, State.cancelled)
    parent = await place.add()
    hand = place.hand()
    await hand.bury(await hand.take())
    late, plain = place.job(after=(parent,)), place.job()
    await place.put(late, plain)
    assert await told(place) == once([late.id], State.cancelled)
    assert place.server.ask("KEYS", place.key("R:*")) == [], "it lies beside the list, too"
    assert place.sound()


async def test_what_a_hook_is_told_may_be_large() -> None:
    place = Place()
    await publish(place, State.dead)
    await place.add_many(2)
    hand = place.hand(queues=("default",))
    reasons = ["short", "long " * 400]
    for reason in reasons:
        await hand.bury(await hand.take(), message=reason)
    jobs = await place.hand("hooked").claim(2)
    assert [reason in job.args.decode() for job, reason in zip(jobs, reasons, strict=True)] == [True, True]
    assert place.sound()
