"""An app and its jobs that wait: signals by handle, id or key, decisions of people, and how a status shows them."""

from __future__ import annotations

import pytest

from limpet import InvalidStep, JobNotFound, Limpet, PayloadTooLarge, current_job
from limpet.core.jobs.lease import MAX_EVENTS_BYTES

UNKNOWN = "019a0000-0000-7000-8000-000000000000"


async def test_a_job_goes_on_when_it_is_signalled_by_handle_id_or_key(app: Limpet) -> None:
    @app.task(name="ship")
    async def ship() -> object:
        return await current_job().wait_for("paid")

    jobs = [await ship.options(unique=f"order:{n}").enqueue() for n in range(4)]
    await app.work(until_empty=True)
    status = await jobs[0].status()
    assert (status.state, status.due_at, status.waits_for) == ("scheduled", None, ("paid",))
    assert await app.signal(jobs[0], "paid", 0) == "woken"
    assert await app.signal(jobs[1].id, "paid", 1) == "woken"
    assert await app.signal("order:2", "paid", 2) == "woken"
    assert await jobs[3].signal("paid", 3) == "woken"
    assert (await jobs[0].status()).waits_for == ()
    await app.work(until_empty=True)
    assert [await job.result() for job in jobs] == [0, 1, 2, 3]
    assert await app.signal("order:2", "paid", task="ship") == "finished"
    assert await jobs[3].signal("paid") == "finished"


async def test_a_job_that_keeps_too_many_events_refuses_the_next(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    job = await t.options(delay=3600).enqueue()
    for number in range(16):
        await job.signal(f"page {number}", "x" * (MAX_EVENTS_BYTES // 16 - 2))
    with pytest.raises(PayloadTooLarge, match="4,194,304 bytes"):
        await job.signal("paid")


async def test_a_signal_says_what_became_of_it(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    job = await t.options(delay=3600).enqueue()
    assert [await job.signal("paid"), await app.signal(job, "paid")] == ["kept", "already"]
    with pytest.raises(JobNotFound):
        await app.signal(UNKNOWN, "paid")
    with pytest.raises(JobNotFound):
        await app.get(UNKNOWN).signal("paid")
    with pytest.raises(InvalidStep, match="of Limpet's own"):
        await job.signal("sleep:sleep-1")


async def test_people_decide(app: Limpet) -> None:
    @app.task(name="pay")
    async def pay(amount: int) -> str:
        said = await current_job().approval(f"Pay {amount} USD?", timeout="7d")
        return f"{'paid' if said.approved else 'refused'}: {said.by} said {said.comment!r}"

    yes, no = await pay.enqueue(90), await pay.enqueue(900)
    await app.work(until_empty=True)
    assert await app.approve(yes, by="ada", comment="fine") == "woken"
    assert await app.reject(no.id, by="bob", comment="too much") == "woken"
    assert await app.approve(no, by="ada") == "already"
    await app.work(until_empty=True)
    assert [await yes.result(), await no.result()] == ["paid: ada said 'fine'", "refused: bob said 'too much'"]


def test_plain_code_signals_through_the_bridge() -> None:
    app = Limpet("sqlite://")

    @app.task(name="ship")
    def ship() -> object:
        job = current_job()
        return job.run(job.wait_for("paid"))

    job = ship.enqueue_sync()
    app.run(app.work(until_empty=True))
    assert app.run(app.signal(job, "paid", "card")) == "woken"
    app.run(app.work(until_empty=True))
    assert app.run(job.result()) == "card"
    app.run(app.close())
