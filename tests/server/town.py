"""Fills a store with two of everything: of the queue `mail`, and of a queue whose names all begin with SECRET."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec.structs import replace

from limpet import Breaker, Every, Limit, Limpet
from limpet.client.file_types import publish_types
from limpet.core.alerts.rule import DEFAULTS, AlertRules
from limpet.core.endings.transition import Bury, Failure
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Job
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.ops import Operator, Schedules, Types
from limpet.ops.alert_look import AlertLook
from limpet.ops.limits import LimitChange
from limpet.records import JobRecord
from limpet.stores.base import Store
from tests.ops.making import job
from tests.ops.suspended import asks
from tests.server.conftest import app_on

SECRET = "zecret"  # no word of ours has it
QUEUES = ("mail", f"{SECRET}.queue")


@dataclass(frozen=True)
class Half:
    """The ids of one queue's things."""

    job: str
    dead: str
    asking: str
    flow: str
    operations: dict[str, str]  # by what is to become of them


def declared(store: Store) -> Limpet:
    """The app whose tasks the town's jobs are of."""
    app = app_on(store)
    for queue in QUEUES:
        word = queue.partition(".")[0]

        @app.schedule(Every("1h"), name=f"{word}.schedule")
        @app.task(
            name=f"{word}.task",
            queue=queue,
            limits=[Limit(f"{word}.limit", rate="1000/s")],
            breaker=Breaker(name=f"{word}.breaker"),
        )
        async def task() -> None: ...

        @app.on_dead(name=f"{word}.hook", tasks=["another"])
        async def hook(job: JobRecord) -> None: ...

    return app


async def town(store: Store) -> tuple[Half, Half]:
    """What is there of `mail`, and what of the other queue."""
    app = declared(store)
    await app.publish()
    oldest = replace(DEFAULTS["oldest_ready"], each=dict.fromkeys(QUEUES, 3_600_000.0))
    await store.put_control(AlertRules((DEFAULTS["dead_letters"], oldest)).control())
    halves = [await _half(store, app, queue) for queue in QUEUES]
    await AlertLook(store, "town").look()
    return halves[0], halves[1]


async def _half(store: Store, app: Limpet, queue: str) -> Half:
    word = queue.partition(".")[0]
    operator = Operator(store, f"{word}.person")
    serves = Serves((queue,), (f"{word}.task",), (f"{word}.capability",))
    await store.beat(Beat(f"{word}.worker", 600_000, serves, f'{{"host":"{word}.host"}}'.encode()))
    dead = await _bury(store, job(f"{word}.task", queue, {"to": word}, tenant=f"{word}.tenant"), word, serves)
    waiting = await asks(store, f"{word} question?", one=job(f"{word}.task", queue, {"to": word}))
    handle = await app.enqueue(f"{word}.task", {}, queue=queue, tags=[f"{word}.tag"])
    flow = app.flow(f"{word}.flow")
    flow.add(app.tasks[f"{word}.task"].job())
    whole = await flow.enqueue()
    cause = (await operator.causes(queue))[0].key
    await operator.desk.escalate(cause, f"{word}.team", reason=f"{word}.reason")
    await operator.pause(f"queue:{queue}", reason=f"{word}.reason")
    await operator.resume(f"queue:{queue}")
    await operator.set_limit(f"{word}.limit", LimitChange(concurrency=9), reason=f"{word}.reason")
    await operator.trip(f"{word}.breaker", reason=f"{word}.reason")
    await operator.reset(f"{word}.breaker")
    await operator.set_weight(f"queue:{queue}", 2)
    await publish_types(store, {f"{word}.{name}": {"queue": queue} for name in ("type", "other")})
    await Types(store, f"{word}.person").set(f"{word}.type", {"lease": "1h"}, reason=f"{word}.reason")
    await operator.set_retention(queue, {"succeeded": "1h"})
    schedules = Schedules(store, f"{word}.person", handle=lambda answer, task: answer)
    await schedules.add(Every("2h"), f"{word}.task", name=f"{word}.second", reason=f"{word}.reason")
    await operator.alerts.silence(f"dead_letters:{queue}", reason=f"{word}.reason")
    await operator.redaction.add(f"{word}_hidden", task=f"{word}.task", reason=f"{word}.reason")
    if word == "mail":
        await operator.redaction.add("mail_gone", reason="mail.reason")  # for all tasks: every caller is told
    await operator.cancel([handle.id], reason=f"{word}.reason")
    operations = {}
    for verb in ("pause", "resume", "cancel"):
        began = await operator.operations.start("discard", f"queue:{queue} tag:none", reason=f"{word}.reason")
        operations[verb] = (await operator.operations.pause(began.id, reason=f"{word}.reason")).id
    return Half(handle.id, id_text(dead), id_text(waiting), whole.id, operations)


async def _bury(store: Store, one: Job, word: str, serves: Serves) -> bytes:
    await store.enqueue([one])
    session = f"{word}.worker"
    (claimed,) = (await store.claim(ClaimRequest(session, serves, 1, 1, time.monotonic_ns()))).jobs
    failure = Failure("permanent", f"{word}Error", f"{word} message", "Traceback", cause=f"cause-{word}")
    await store.settle(session, time.monotonic_ns(), [Bury(claimed.id, claimed.token, failure)])
    return claimed.id


def path_of(path: str, half: Half, word: str) -> str:
    """A route's path with the names of one half in it."""
    names = {
        "/flows/{id}": half.flow,
        "/dead/causes/{cause}": f"cause-{word}",
        "/alerts/silences/{pattern}": f"dead_letters:{word}" if word == "mail" else f"dead_letters:{SECRET}.queue",
        "/queues/{name}": word if word == "mail" else f"{SECRET}.queue",
        "/weights/{name}": "queue:mail" if word == "mail" else f"queue:{SECRET}.queue",
        "/retention/{queue}": "mail" if word == "mail" else f"{SECRET}.queue",
        **{f"/operations/{{id}}/{verb}": id for verb, id in half.operations.items()},
        "/operations/{id}": half.operations["pause"],
        "/redaction/{rule}": f"{word}_gone",
        "/hooks/{name}": f"{word}.hook",
        "/tasks/{name}": f"{word}.task",
        "/types/{name}": f"{word}.type",
        "/schedules/{name}": f"{word}.schedule",
        "/limits/{key}": f"{word}.limit",
        "/breakers/{key}": f"{word}.breaker",
    }
    begin = next((each for each in names if path.startswith(each)), "")
    value = names.get(begin, half.dead)
    head, brace, rest = path.partition("{")
    return head + value + rest.partition("}")[2] if brace else path


__all__ = ["QUEUES", "SECRET", "Half", "id_bytes", "path_of", "town"]
