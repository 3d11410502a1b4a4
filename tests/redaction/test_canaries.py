"""No face shows a secret: planted ones are looked for in whatever operators, commands, logs and hooks are told."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import Limpet
from limpet.cli import main
from limpet.core.errors import JobError
from limpet.core.jobs.ids import id_text
from limpet.core.redaction.rule import MASK
from limpet.core.settings import ServerTable
from limpet.ops import Flows, Operator, Waits, parse_query
from limpet.runtime.log_writer import LogWriter
from limpet.server import Api
from limpet.server.table import ROUTES
from tests.redaction.canaries import Shop
from tests.server.asking import Client
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared as shared_postgres
from tests.servers.redis import shared

ENGINES = ("sqlite", "redis", "postgres")
READS = [
    "jobs", "jobs state:dead", "dead", "dead list", "dead causes", "dead log", "operations",
    "queues", "workers", "tasks", "tasks login",
    "stats", "events", "audit", "flows", "schedules", "schedules show tick", "schedules next", "approvals", "hooks",
    "limits", "breakers", "doctor", "redaction", "retry state:dead --dry-run", "cancel state:scheduled --dry-run",
    "rerun state:succeeded --dry-run", "discard",
]  # fmt: skip
OF_A_JOB = ["job", "explain", "dead show", "flows show"]


def url_of(engine: str, folder: Path) -> str:
    if engine == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}?sync=normal"
    return shared(REDIS).url if engine == "redis" else shared_postgres(POSTGRES).url


@contextmanager
def log_lines() -> Iterator[None]:
    """All lines of the log on stderr, as text and as JSON."""
    root, writers = logging.getLogger(), [LogWriter("text"), LogWriter("json")]
    level = root.level
    root.setLevel(logging.DEBUG)
    for writer in writers:
        root.addHandler(writer)
    yield
    for writer in writers:
        writer.flush()
        root.removeHandler(writer)
    root.setLevel(level)


async def told_by_ops(shop: Shop) -> dict[str, object]:
    """Whatever an operator without the app is told."""
    store = shop.app.store
    operator, waits, flows = Operator(store, "ada"), Waits(store, "ada"), Flows(store, "ada")
    ids = [job.id for job in shop.jobs.values()]
    page = await operator.jobs(limit=100)
    dead = parse_query("state:dead")
    found: dict[str, object] = {
        "jobs": page,
        "job": [await operator.job(each.id) for each in page.jobs],
        "explain": [await operator.explain(each.id) for each in page.jobs],
        "causes": await operator.desk.causes(hours=True),
        "cause": [await operator.desk.cause(each.key) for each in await operator.causes()],
        "task": [await operator.task(each.task) for each in await operator.tasks()],
        "queues": await operator.queues(),
        "workers": await operator.workers(),
        "history": [await operator.history(each.id) for each in page.jobs],
        "operation": await operator.operations.preview("retry", dead),
        "limits": await operator.limits(),
        "stats": await operator.stats(),
        "events": await operator.events(),
        "doctor": await operator.doctor(),
        "hooks": await operator.hooks(),
        "approvals": await waits.approvals(parse_query("")),
        "flows": [await flows.status(each.id) for each in await flows.newest()],
        "schedules": [await shop.app.schedules.get(each.name) for each in await shop.app.schedules.list()],
        "retry": await operator.retry(dead, dry_run=True),
        "status": [await job.status() for job in shop.jobs.values()],
        "why": [await job.explain() for job in shop.jobs.values()],
    }
    form = shop.form("patch")
    patch = {"pin": shop.canaries.plant("patched pin"), "form": form, "pem": f"a\n{form['password']}\nb"}
    which = [ids[1]]
    found["dry edit"] = await operator.retry(which, patch=patch, dry_run=True)
    found["edit"] = await operator.retry(which, patch=patch, reason="other pin")
    await shop.app.work(until_empty=True)
    found["after"] = [await operator.job(ids[1]), await operator.explain(ids[1]), await operator.causes()]
    found["approved"] = await waits.approve(shop.jobs["pay"].id, comment="fine")
    found["audit"] = await operator.audit()
    found["hook"] = shop.told
    for name in ("login", "long", "use"):
        try:
            await shop.jobs[name].result(timeout=0)
        except JobError as error:
            found[f"result of {name}"] = f"{error!r} {vars(error)}"
    return found


async def told_by_http(shop: Shop, url: str, namespace: str) -> dict[str, str]:
    """Whatever GET answers to an admin and to a token for one queue, from a server without the app; and of edits."""
    found: dict[str, str] = {}
    settings = ServerTable(rate="1000000/s")  # a test asks faster than people
    async with Limpet(url, namespace=namespace) as bare, Api(bare, settings=settings, local=True).lifespan() as api:
        client = Client(api)
        operator = Operator(bare.store, "ada")
        scoped = Client(api, (await operator.tokens.create("admin", queues=["default"])).token)
        names = {
            "/jobs/{id}": [job.id for job in shop.jobs.values()],
            "/flows/{id}": [id_text(each.id) for each in await Flows(bare.store, "ada").newest()],
            "/dead/causes/{cause}": [each.cause for each in await operator.causes()],
            "/queues/{name}": ["default"],
            "/tasks/{name}": [each.task for each in await operator.tasks()],
            "/schedules/{name}": ["tick"],
        }
        for route in ROUTES:
            if route.method == "GET" and not route.stream:
                head, _, rest = route.full_path.removeprefix("/api/v1").partition("}")
                for name in names.get(f"{head}}}", []) if rest or "{" in head else [""]:
                    path = route.full_path.replace(head[head.find("{") :] + "}", name) if name else route.full_path
                    answer = await client.get(path)
                    assert answer.status == 200, (path, answer.raw)
                    found[f"GET {path}"] = answer.raw.decode()
                    found[f"GET {path} by a token for one queue"] = (await scoped.get(path)).raw.decode()
        login = f"/api/v1/jobs/{shop.jobs['login'].id}"
        pin = shop.canaries.plant("patch over HTTP")
        for body in (
            {"patch": {"pin": pin}, "dry_run": True},
            {"patch": {"pin": pin, "nobody": 1}},
            {"patch": {"pin": 7}},
        ):
            found[f"POST {body.keys()} {len(found)}"] = (await client.post(f"{login}/retry", body)).raw.decode()
    return found


def text_of(thing: Any) -> str:
    return msgspec.json.encode(thing, enc_hook=str).decode()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_face_shows_a_secret(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = f"canaries{secrets.token_hex(4)}"
    shop = Shop(url_of(engine, tmp_path), namespace)
    found: dict[str, str] = {}

    async def play() -> None:
        async with shop.app:
            with log_lines():
                await shop.play()
                found["said"] = ""
                for face, told in (await told_by_ops(shop)).items():
                    found[face] = text_of(told)
                found.update(await told_by_http(shop, url_of(engine, tmp_path), namespace))

    asyncio.run(play())
    found["log"] = "".join(capsys.readouterr())
    where = ["--url", url_of(engine, tmp_path), "--namespace", namespace]
    calls = [words.split() for words in READS]
    calls += [[*words.split(), job.id] for words in OF_A_JOB for job in shop.jobs.values()]
    calls += [["dead", "edit", shop.jobs["login"].id, "--patch", '{"user": "bob"}', "--dry-run"]]
    calls += [["enqueue", "issue", '{"pin": "x"}', "--id", shop.jobs["issue"].id, "--wait", "5s"]]
    for call in calls:
        for form in ([], ["--json"]):
            main([*call, *where, *form])
            found[" ".join(("limpet", *call, *form))] = "".join(capsys.readouterr())
    sung = {face: leaked for face, text in found.items() if (leaked := shop.canaries.sung(text))}
    assert sung == {}
    assert len(shop.told) >= 3
    assert MASK in found["hook"]
    faces = ("job", "explain", "log", "causes", "audit", "flows", "schedules")
    assert [face for face in faces if MASK not in found[face]] == []
    assert MASK in found["limpet jobs --json"]
    assert MASK in found["GET /api/v1/jobs"]
    assert MASK in found["GET /api/v1/jobs by a token for one queue"]
    assert MASK in found[f"GET /api/v1/jobs/{shop.jobs['login'].id}"]
    assert all(MASK in found[" ".join(("limpet", *calls[-1], *form))] for form in ([], ["--json"]))


def test_without_rules_every_canary_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the test above cannot find is nowhere to be found: it looks where secrets are."""
    shop = Shop(url_of("sqlite", tmp_path), "bare")

    async def play() -> set[str]:
        async with shop.app:
            await shop.play()
            operator = Operator(shop.app.store, "ada")
            for rule in await operator.redaction.list():
                await operator.redaction.remove(rule.rule, task=rule.task or "")
            return shop.canaries.sung(text_of(await told_by_ops(shop)))

    assert set(shop.canaries) - asyncio.run(play()) == set()
