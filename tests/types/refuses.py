# mypy: ignore-errors
"""Every line with an `# E:` comment must be refused by mypy --strict with exactly those codes; never run.

The first line keeps the project's own type check quiet; the test checks the file without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from limpet import Budget, Every, Inject, JobRecord, Limpet, chain, current_job, group

app = Limpet("sqlite://")


class Pool:
    """Something that jobs share."""


@app.resource
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@app.task
async def send(customer: str, *, to: str) -> dict[str, int]:
    return {"sent": 1}


@app.task(queue="images")
def resize(image: int, width: int = 100) -> bytes:
    return b""


@app.task(quue="images")  # E: call-overload, untyped-decorator
def misspelt(image: int) -> None: ...


@app.task(executor="fork")  # E: call-overload, untyped-decorator
def wrong_executor() -> None: ...


@app.task
async def wrong_resource(db: int = Inject(pool)) -> None: ...  # E: assignment


@app.on_dead(state="dead")  # E: call-overload, untyped-decorator
def wrong_option(job: JobRecord) -> None: ...


@app.schedule("@daily")  # E: arg-type
@app.task
async def when_is_text() -> None: ...


@app.schedule(Every(60), prioritty="low")  # E: call-arg
@app.task
async def misspelt_option() -> None: ...


@app.schedule(Every(60))  # E: type-var
async def no_task() -> None: ...


async def ask() -> None:
    await send.enqueue(42, to="x")  # E: arg-type
    await send.enqueue("acme")  # E: call-arg
    await send.enqueue("acme", to="x", cc="y")  # E: call-arg
    await send.enqueue("acme", "x")  # E: call-arg
    resize.enqueue_sync("a")  # E: arg-type
    send.options(dealy=3)  # E: call-arg
    send.options(delay=[])  # E: arg-type
    send.options(on_duplicate="ignore")  # E: arg-type
    job = await send.enqueue("acme", to="x")
    number: int = await job.result()  # E: assignment
    word: str = await send("acme", to="x")  # E: assignment
    resize("a")  # E: arg-type
    await resize(1)  # E: misc
    text: str = resize(1)  # E: assignment
    await app.enqueue_many([send.enqueue("acme", to="x")])  # E: list-item
    await app.enqueue("send", {}, dely=3)  # E: call-arg
    chain(send.job("acme", to="x"), send)  # E: arg-type
    group([send.enqueue("acme", to="x")])  # E: list-item
    count: int = await (await chain(send.job("acme", to="x"), resize.job()).enqueue()).result()  # E: assignment
    app.flow("report").add(send)  # E: call-overload
    app.flow("report").add(resize.job(1), afer=job)  # E: call-overload
    here = current_job()
    await here.step("resize", resize, "a")  # E: call-overload
    await here.step("resize")  # E: call-overload
    await here.step.options(on_error="ignore")("resize", resize, 1)  # E: arg-type
    await here.sleep()  # E: call-arg
    here.spent(token=5)  # E: call-arg
    here.spent(usd="much")  # E: arg-type
    Budget("llm", 5)  # E: call-arg
    Budget("llm", usd=5, per="fortnight")  # E: arg-type
    send.options(cost={"eur": 5})  # E: arg-type
    await app.approve(job)  # E: call-arg
    assert [number, word, text, count, job.nothing]  # E: attr-defined


async def words_of_other_libraries() -> None:
    send.delay("acme", to="a@b.c")  # E: attr-defined
    app.send_task("send")  # E: attr-defined
    (await resize.enqueue(1)).get()  # E: attr-defined
    current_job().retry()  # E: attr-defined
