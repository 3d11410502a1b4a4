"""Behaviours of hooks: the step that ends a job also stores the jobs of the hooks that are for such an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from hashlib import sha1, sha256

import msgspec
import pytest

from limpet.core.endings.hook import QUEUE, Ending, Hook
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.stores.asking import examined
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.hand import ENDINGS, Hand

DEAD, SUCCEEDED, CANCELLED = State.dead, State.succeeded, State.cancelled
ALL = (SUCCEEDED, DEAD, CANCELLED)
WIDE = 1_100  # dependents: more than one step takes down on any engine


async def publish(
    bench: Bench, *states: State, name: str = "hook", tasks: tuple[str, ...] = (), queues: tuple[str, ...] = ()
) -> None:
    """A hook for these states; without any, one that is there is removed."""
    hook = Hook(Lane(QUEUE, name), Policy(attempts=3), states, tasks, queues)
    await bench.store.put_control(hook.control())


async def hook_jobs(bench: Bench) -> list[JobView]:
    return [job for job in await bench.everything() if job.lane.queue == QUEUE]


async def endings(bench: Bench) -> list[Ending]:
    """What the jobs of hooks are told, in the order in which they came; it is what the jobs themselves say."""
    found = [msgspec.json.decode(job.args, type=dict[str, Ending])["ending"] for job in await hook_jobs(bench)]
    for ending, view in zip(found, await bench.store.get([id_bytes(each.job) for each in found]), strict=True):
        if view is not None and (view.state, view.finished_at_ms) == (ending.state, ending.at_ms):
            lane = view.lane
            place = (ending.queue, ending.task, ending.priority, ending.tenant)
            assert place == (lane.queue, lane.task, lane.priority, lane.tenant)
            said = (ending.attempt, ending.enqueued_at_ms, ending.reason, ending.error_type)
            assert said == (view.attempt, view.enqueued_at_ms, view.reason, view.error_type)
    return found


async def told(bench: Bench) -> Counter[tuple[str, State]]:
    """How often the hooks hear of which job and state."""
    return Counter((ending.job, ending.state) for ending in await endings(bench))


def once(ids: Collection[bytes], state: State) -> Counter[tuple[str, State]]:
    return Counter((id_text(id), state) for id in ids)


def worker(bench: Bench) -> Hand:
    """One that leaves the jobs of hooks alone."""
    return bench.hand("runner", queues=("default", "other"))


@asynchronous
class TestHooks:
    async def test_a_death_makes_a_job_that_knows_how_it_ended(self, bench: Bench) -> None:
        await publish(bench, DEAD)
        id = await bench.add(task="mail", tenant="acme")
        hand, enqueued_at_ms = worker(bench), bench.clock.now_ms
        bench.clock.advance(1_000)
        await hand.fail(await hand.take())
        await hand.bury(await hand.take(), message='no such "address" \\ ☃', cause="addresses")
        (job,) = await hook_jobs(bench)
        assert (job.lane, job.state, job.due_at_ms) == (Lane(QUEUE, "hook"), State.ready, bench.clock.now_ms)
        (ending,) = await endings(bench)
        assert ending == Ending(
            job=id_text(id),
            task="mail",
            queue="default",
            priority=5,
            tenant="acme",
            state=DEAD,
            attempt=2,
            enqueued_at_ms=enqueued_at_ms,
            reason='no such "address" \\ ☃',
            error_type="builtins.RuntimeError",
            at_ms=bench.clock.now_ms,
        )

    async def test_its_job_is_claimed_with_the_policy_of_the_hook_and_can_be_settled(self, bench: Bench) -> None:
        await publish(bench, DEAD)
        await bench.add()
        hand = worker(bench)
        await hand.bury(await hand.take())
        hooked = bench.hand("hooked", queues=(QUEUE,))
        job = await hooked.take()
        assert (job.attempt, job.policy.attempts) == (1, 3)
        await hooked.succeed(job)
        assert await hooked.claim() == []

    async def test_without_a_hook_there_is_no_job(self, bench: Bench) -> None:
        await bench.add_many(2)
        hand = worker(bench)
        await hand.bury(await hand.take())
        await hand.succeed(await hand.take())
        assert await hook_jobs(bench) == []

    @pytest.mark.parametrize(
        ("how", "state"), [("succeed", SUCCEEDED), ("bury", DEAD), ("drop", CANCELLED), ("prove", DEAD)]
    )
    async def test_each_end_of_a_running_job_is_told_once(self, bench: Bench, how: str, state: State) -> None:
        await publish(bench, *ALL)
        ids = await bench.add_many(3)
        hand = worker(bench)
        await hand.end(how, *await hand.claim(3))
        assert await told(bench) == once(ids, state)

    @pytest.mark.parametrize("how", ["fail", "release", "snooze", "sleep", "hold", "lose"])
    async def test_what_is_no_end_makes_none(self, bench: Bench, how: str) -> None:
        await publish(bench, *ALL)
        await bench.add()
        hand = worker(bench)
        await hand.end(how, await hand.take())
        assert await hook_jobs(bench) == []

    async def test_successes_of_all_kinds_are_told_with_their_attempt(self, bench: Bench) -> None:
        await publish(bench, SUCCEEDED)
        first, tried, limited = [
            await bench.add(),
            await bench.add(task="tried"),
            await bench.add(task="limited", limits=("smtp",)),
        ]
        await bench.declare(GateRule("limit:smtp", concurrency=5))
        hand = worker(bench)
        (job,) = [job for job in await hand.claim(3) if job.id == tried]
        await hand.fail(job)
        jobs = await hand.claim(1)
        await hand.succeed(*jobs, result=b'{"ok":true}')
        await hand.leave()
        hand = bench.hand("second", queues=("default",))
        await hand.succeed(*await hand.claim(3))
        assert {ending.job: (ending.attempt, ending.reason) for ending in await endings(bench)} == {
            id_text(first): (1, ""),
            id_text(tried): (2, ""),
            id_text(limited): (1, ""),
        }

    async def test_a_hook_is_only_for_its_states_tasks_and_queues(self, bench: Bench) -> None:
        await publish(bench, DEAD, name="of mail", tasks=("mail", "post"))
        await publish(bench, DEAD, SUCCEEDED, name="of other", queues=("other",))
        await publish(bench, CANCELLED, name="of both", tasks=("mail",), queues=("other",))
        for queue in ("default", "other"):
            for task in ("mail", "work"):
                await bench.add(queue=queue, task=task)
        hand = worker(bench)
        for job in await hand.claim(4):
            await hand.bury(job)
        await bench.add(queue="other", task="work")
        await hand.succeed(await hand.take())
        places = Counter((job.lane.task, ending.queue, ending.task, ending.state) for job, ending in await pairs(bench))
        assert places == Counter(
            [
                ("of mail", "default", "mail", DEAD),
                ("of mail", "other", "mail", DEAD),
                ("of other", "other", "mail", DEAD),
                ("of other", "other", "work", DEAD),
                ("of other", "other", "work", SUCCEEDED),
            ]
        )

    async def test_a_hook_that_changes_or_goes_does_so_with_the_next_end(self, bench: Bench) -> None:
        await publish(bench, SUCCEEDED)
        ids = await bench.add_many(3)
        hand = worker(bench)
        one, two, three = await hand.claim(3)
        await publish(bench, DEAD)
        await hand.succeed(one)
        await hand.bury(two)
        await publish(bench)
        await hand.bury(three)
        assert await told(bench) == once([two.id], DEAD)
        assert len(ids) == 3

    async def test_jobs_of_hooks_have_no_hooks_and_die_like_others(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        id = await bench.add()
        hand = worker(bench)
        await hand.bury(await hand.take())
        hooked = bench.hand("hooked", queues=(QUEUE,))
        job = await hooked.take()
        await hooked.bury(job)
        assert await told(bench) == once([id], DEAD)
        assert await bench.state(job.id) is DEAD
        assert await bench.retry(job.id) == ["retried"]

    async def test_two_deaths_of_one_job_are_two_endings(self, bench: Bench) -> None:
        await publish(bench, DEAD)
        id = await bench.add()
        hand = worker(bench)
        await hand.bury(await hand.take())
        await bench.retry(id)
        await hand.bury(await hand.take())  # in the same millisecond
        assert await told(bench) == Counter({(id_text(id), DEAD): 2})

    async def test_an_end_that_is_told_again_is_the_same_ending(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        ids = await bench.add_many(2)
        hand = worker(bench)
        first, second = await hand.claim(2)
        for _ in range(2):
            await hand.settle(ENDINGS["bury"](first), ENDINGS["succeed"](second), seq=1_000_000)
        await hand.settle(ENDINGS["bury"](first), ENDINGS["bury"](second))
        assert await told(bench) == once(ids[:1], DEAD) + once(ids[1:], SUCCEEDED)

    async def test_the_id_of_its_job_is_derived_from_the_end(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        ids = await bench.add_many(4)
        hand = worker(bench)
        died, worked, dropped = await hand.claim(3)
        await hand.settle(ENDINGS["bury"](died), ENDINGS["succeed"](worked), ENDINGS["drop"](dropped))
        await bench.cancel(ids[3])  # it waited: there is no lease
        tokens = {died.id: died.token, worked.id: worked.token, dropped.id: dropped.token, ids[3]: 0}
        said = [b"%b%d\0hook" % (id, token) for id, token in tokens.items()]
        at = bench.clock.now_ms.to_bytes(6, "big")
        made = {job.id for job in await hook_jobs(bench)}
        # Which of these hashes it is, is the engine's business.
        assert made in [{at + hashed(each).digest()[:10] for each in said} for hashed in (sha1, sha256)]

    async def test_no_depth_drain_or_pause_refuses_it(self, bench: Bench) -> None:
        await publish(bench, DEAD)
        ids = await bench.add_many(3)
        key = f"queue:{QUEUE}"
        await bench.change(GateChange(key, rule=GateRule(key, depth=1), drain=True))
        hand, hooked = worker(bench), bench.hand("hooked", queues=(QUEUE,))
        for job in await hand.claim(3):
            await hand.bury(job)
        assert await told(bench) == once(ids, DEAD)
        await bench.change(GateChange(key, pause=Pause("ada", "", bench.clock.now_ms)))
        assert await hooked.claim() == []
        await bench.change(GateChange(key, resume=True))
        assert len(await hooked.claim(3)) == 3

    async def test_a_worker_that_sleeps_for_hooks_is_woken(self, bench: Bench) -> None:
        await publish(bench, DEAD)
        await bench.add()
        hand, hooked = worker(bench), bench.hand("hooked", queues=(QUEUE,))
        assert await hooked.claim() == []
        await hand.bury(await hand.take())
        assert (await hooked.wait(10_000)).work
        assert len(await hooked.claim()) == 1


async def pairs(bench: Bench) -> list[tuple[JobView, Ending]]:
    return list(zip(await hook_jobs(bench), await endings(bench), strict=True))


@asynchronous
class TestHooksOfOthersEnds:
    """Ends that no worker settles: people, time and parents."""

    async def test_cancelled_jobs_are_told_with_all_their_dependents(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        later = await bench.add(delay_ms=60_000)
        await bench.cancel(parent, later, reason="not needed")
        assert await told(bench) == once([parent, child, grandchild, later], CANCELLED)
        reasons = {ending.job: ending.reason for ending in await endings(bench)}
        assert reasons[id_text(parent)] == "not needed"
        assert reasons[id_text(child)] == (await bench.view(child)).reason
        assert {ending.attempt for ending in await endings(bench)} == {0}

    async def test_a_job_that_is_cancelled_by_force_is_told_once(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        id = await bench.add()
        child = await bench.add(after=(id,))
        hand = worker(bench)
        job = await hand.take()
        await bench.cancel(id, force=True, reason="stop it")
        await hand.succeed(job)
        assert await told(bench) == once([id, child], CANCELLED)
        assert {ending.job: ending.reason for ending in await endings(bench)}[id_text(id)] == "stop it"

    async def test_dependents_of_a_job_that_is_asked_to_stop_are_told_at_once(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        id = await bench.add()
        child = await bench.add(after=(id,))
        hand = worker(bench)
        job = await hand.take()
        await bench.cancel(id)
        assert await told(bench) == once([child], CANCELLED)
        await hand.end("fail", job)
        assert await told(bench) == once([id, child], CANCELLED)

    async def test_a_death_is_told_with_the_dependents_that_it_takes_down(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = worker(bench)
        await hand.bury(await hand.take())
        late = await bench.add(after=(parent,))  # cancelled as it comes
        assert await told(bench) == once([parent], DEAD) + once([child, late], CANCELLED)
        bench.clock.advance(1)
        await bench.retry(parent)
        await hand.bury(await hand.take())
        assert await told(bench) == once([parent, parent], DEAD) + once([child, late] * 2, CANCELLED)

    async def test_what_comes_with_a_job_that_ends_at_once_comes_once(self, bench: Bench) -> None:
        await publish(bench, CANCELLED)
        parent = await bench.add()
        hand = worker(bench)
        await hand.bury(await hand.take())
        late, others = bench.job(after=(parent,)), [bench.job() for _ in range(3)]
        await bench.put(late, *others)
        assert await told(bench) == once([late.id], CANCELLED)
        assert await examined(bench.store).repair(dry_run=True, now_ms=bench.clock.now_ms) == []
        assert await hand.drain(5) == [job.id for job in others]

    async def test_a_very_wide_cascade_tells_of_every_dependent(self, bench: Bench) -> None:
        await publish(bench, CANCELLED)
        parent = await bench.add()
        children = await bench.add_many(WIDE, after=(parent,))
        await bench.cancel(parent)
        hand = worker(bench)
        for _ in range(10):
            assert await hand.claim() == []  # what one step leaves over follows with the next claims
        assert await told(bench) == once([parent, *children], CANCELLED)

    async def test_a_job_that_is_not_started_in_time_is_told(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        swept, claimed = await bench.add(expires_ms=1_000), await bench.add(expires_ms=5_000)
        hand = worker(bench)
        await bench.sweep(2_000, hand)
        assert await told(bench) == once([swept], CANCELLED)
        bench.clock.advance(5_000)
        await hand.beat()
        assert await hand.claim() == []
        await bench.sweep(SWEEP_MS, hand)
        assert await told(bench) == once([swept, claimed], CANCELLED)
        assert {ending.reason for ending in await endings(bench)} == {"expired"}

    async def test_a_job_whose_worker_fell_silent_too_often_is_told(self, bench: Bench) -> None:
        await publish(bench, *ALL)
        id = await bench.add(policy=Policy(max_lost=1))
        silent, alive = worker(bench), bench.hand("alive", queues=("other",))
        await silent.take()
        await bench.lose(id, alive)
        (ending,) = await endings(bench)
        assert (ending.job, ending.state, ending.error_type) == (id_text(id), DEAD, "limpet.Poison")

    async def test_dependents_of_a_job_that_is_discarded_are_told(self, bench: Bench) -> None:
        await publish(bench, CANCELLED)
        parent = await bench.add()
        child = await bench.add(after=(parent,), if_parent_fails="wait")
        hand = worker(bench)
        await hand.bury(await hand.take())
        await bench.store.discard([parent], now_ms=bench.clock.now_ms)
        assert await told(bench) == once([child], CANCELLED)
