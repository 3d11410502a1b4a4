"""A schema is made once, upgraded when somebody says so, by one of many, and never half."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from limpet.cli import main
from limpet.core.errors import SchemaOutdated, StoreError, StoreUnreachable
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.stores.base import Migrates
from limpet.stores.open import open_store, redacted
from limpet.stores.postgres import check, layout, migrate
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.postgres.next_release import NEXT, THIS, ask_limpet, limpet, make_next
from tests.engines.postgres.places import a_place, start
from tests.next_release import ROOT
from tests.servers.installations import POSTGRES, programs
from tests.servers.postgres import PostgresServer, fresh_database, shared

SERVER = POSTGRES

_names = count(1)


@pytest.fixture
def schema() -> Iterator[str]:
    """The name of a schema that is not there."""
    name = f"migrating-{next(_names)}.x"
    yield name
    shared(SERVER).ask(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


class Release:
    """A release of a test's own: migrations and verbs, in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tables").mkdir()
        (folder / "verbs").mkdir()
        self.verb("1")

    def add(self, number: int, text: str) -> None:
        (self.folder / f"tables/{number:04}.sql").write_text(text)
        self._changed()

    def drop(self, number: int) -> None:
        """As if the release were older."""
        (self.folder / f"tables/{number:04}.sql").unlink()
        self._changed()

    def verb(self, answer: str) -> None:
        """What `told` answers from now on."""
        body = f"CREATE OR REPLACE FUNCTION lp.told_1() RETURNS integer LANGUAGE sql AS 'SELECT {answer}';"
        opened = (
            "CREATE OR REPLACE FUNCTION lp.move_in_1() RETURNS void LANGUAGE sql AS '';"  # whoever opens it asks this
        )
        (self.folder / "verbs/10_told.sql").write_text(f"{body}\n{opened}")
        self._changed()

    def _changed(self) -> None:
        layout.migrations.cache_clear()
        layout.verbs.cache_clear()


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    monkeypatch.setattr(layout, "FOLDER", tmp_path)
    release = Release(tmp_path)
    release.add(1, "CREATE TABLE lp.one (n integer);\nINSERT INTO lp.one VALUES (1);\nCREATE INDEX ON lp.one (n);")
    yield release
    release._changed()


def ask(sql: str, *values: object) -> list[tuple[Any, ...]]:
    return shared(SERVER).ask(sql, *values)


def route_to(schema: str, server: PostgresServer | None = None, options: str = "") -> Client:
    return Client(parse_postgres(f"{(server or shared(SERVER)).url}?{options}"), schema)


async def ready(schema: str) -> None:
    client = route_to(schema)
    try:
        await migrate.ready(client)
    finally:
        client.drop()


async def apply(schema: str, options: str = "") -> list[str]:
    return await migrate.apply(parse_postgres(f"{shared(SERVER).url}?{options}"), schema)


def told(schema: str) -> int:
    return int(ask(f'SELECT "{schema}".told_1()')[0][0])


async def layout_of(schema: str) -> layout.Layout:
    client = route_to(schema)
    try:
        return await migrate.look(client)
    finally:
        client.drop()


# -- a fresh one


async def test_a_fresh_schema_is_made_by_whoever_opens_it(release: Release, schema: str) -> None:
    await ready(schema)
    await ready(schema)
    assert ask(f'SELECT n FROM "{schema}".one') == [(1,)]
    found = await layout_of(schema)
    assert (found.number, found.min_client, found.steps, found.edited) == (1, 1, (), ())
    assert told(schema) == 1


async def test_many_who_open_a_fresh_schema_at_once_all_succeed(release: Release, schema: str) -> None:
    await asyncio.gather(*(ready(schema) for _ in range(12)))
    assert ask(f'SELECT n FROM "{schema}".one') == [(1,)]


async def test_an_empty_schema_that_somebody_made_for_us_is_filled(release: Release, schema: str) -> None:
    """A role that may not create schemas is given one."""
    role = f"guest{next(_names)}"
    ask(f"CREATE ROLE {role} LOGIN")
    ask(f'CREATE SCHEMA "{schema}" AUTHORIZATION {role}')
    port = shared(SERVER).port
    url = parse_postgres(f"postgresql://{role}@127.0.0.1:{port}/postgres")
    assert await migrate.apply(url, schema) == ["0001"]
    assert ask(f'SELECT n FROM "{schema}".one') == [(1,)]
    ask(f'DROP SCHEMA "{schema}" CASCADE')
    with pytest.raises(StoreError, match="permission denied for database") as caught:
        await migrate.apply(url, schema)
    assert caught.value.fix
    ask(f"DROP ROLE {role}")


async def test_a_fault_in_a_file_is_named_with_its_line_and_nothing_is_changed(release: Release, schema: str) -> None:
    await ready(schema)
    release.add(2, "CREATE TABLE lp.two (n integer);\n\nCREATE TABLE lp.three (\n  n integr\n);")
    with pytest.raises(StoreError, match=r"tables/0002\.sql:4 failed, and nothing was changed") as caught:
        await apply(schema)
    assert "integr" in caught.value.message
    assert [number for (number,) in ask(f'SELECT number FROM "{schema}".migration')] == [1]
    assert ask("SELECT to_regclass(%s)", f'"{schema}".two') == [(None,)]


async def test_a_fault_in_a_verb_is_named_with_its_line_and_its_tables_are_not_there_either(
    release: Release, schema: str
) -> None:
    release.verb("\n  1,\n  nothing")
    with pytest.raises(StoreError, match=r"verbs/10_told\.sql:3 failed"):
        await ready(schema)
    assert ask("SELECT to_regclass(%s)", f'"{schema}".one') == [(None,)]


# -- an old one, and one that is newer than we are


async def test_an_old_schema_is_left_to_a_person(release: Release, schema: str) -> None:
    await ready(schema)
    release.add(2, "CREATE TABLE lp.two (n integer);")
    with pytest.raises(SchemaOutdated, match=r"is at migration 1, and this release needs 2") as caught:
        await ready(schema)
    assert "limpet migrate" in caught.value.fix
    assert await apply(schema) == ["0002"]
    assert await apply(schema) == []
    await ready(schema)


async def test_a_release_works_on_the_schema_of_a_later_one_that_says_so(release: Release, schema: str) -> None:
    await ready(schema)
    release.add(2, "-- Min client: 1\nCREATE TABLE lp.two (n integer);")
    release.add(3, "-- Promise: drops what release 1 needs.\n-- Min client: 2\nDROP TABLE lp.one;")
    assert await apply(schema) == ["0002", "0003"]
    release.drop(3)
    await ready(schema)
    release.drop(2)
    with pytest.raises(SchemaOutdated, match="releases that know less than 2 cannot work on it; this one knows 1") as c:
        await ready(schema)
    assert c.value.fix == "upgrade limpet"


async def test_a_file_that_was_changed_since_is_a_finding_and_no_failure(release: Release, schema: str) -> None:
    await ready(schema)
    release.add(1, "CREATE TABLE lp.one (n integer, m integer);")
    await ready(schema)
    found = await layout_of(schema)
    assert found.edited == (1,)
    assert [finding.level for finding in check._layout(found)] == ["ok", "warning"]


# -- verbs


async def test_verbs_are_replaced_with_the_last_migration(release: Release, schema: str) -> None:
    await ready(schema)
    release.add(2, "CREATE TABLE lp.two (n integer);")
    release.add(3, "-- Only verbs have changed.")
    release.verb("3")
    assert await apply(schema) == ["0002", "0003"]
    assert told(schema) == 3
    assert [each.verbs is None for each in (await layout_of(schema)).applied] == [False, True, False]


async def test_verbs_of_the_same_number_that_differ_are_a_finding_and_replaced_by_migrate(
    release: Release, schema: str
) -> None:
    await ready(schema)
    release.verb("2")
    await ready(schema)
    assert told(schema) == 1, "nobody changes them in passing"
    found = await layout_of(schema)
    assert [finding.level for finding in check._layout(found)] == ["ok", "warning"]
    plan = migrate.plan(found, schema)
    assert (plan.at, plan.needs, plan.steps) == (1, 1, ("verbs",))
    assert await apply(schema) == ["verbs"]
    assert told(schema) == 2
    assert await apply(schema) == []
    assert (await layout_of(schema)).steps == ()


async def test_an_older_release_does_not_put_its_verbs_over_newer_ones(release: Release, schema: str) -> None:
    release.add(2, "CREATE TABLE lp.two (n integer);")
    release.verb("2")
    await ready(schema)
    release.drop(2)
    release.verb("1")
    assert await apply(schema) == []
    found = await layout_of(schema)
    assert (told(schema), found.number, found.steps, migrate.plan(found, schema).script) == (2, 2, (), "")


async def test_an_upgrade_that_ended_between_two_steps_is_not_taken_for_one_that_is_done(
    release: Release, schema: str
) -> None:
    """Tables of one release with the verbs of another: neither opens it as its own, and migrate goes on."""
    await ready(schema)
    release.add(2, "CREATE TABLE lp.two (n integer);")
    release.add(3, "CREATE TABLE lp.three (n integr);")
    release.verb("3")
    with pytest.raises(StoreError, match="tables/0003"):
        await apply(schema)
    assert (await layout_of(schema)).number == 1
    release.drop(3)
    with pytest.raises(SchemaOutdated, match="is at migration 1, and this release needs 2"):
        await ready(schema)
    release.drop(2)
    await ready(schema)
    assert told(schema) == 1
    release.add(2, "CREATE TABLE lp.two (n integer);")
    release.verb("2")
    assert await apply(schema) == ["verbs"]
    await ready(schema)
    assert told(schema) == 2


async def test_a_release_that_comes_into_the_upgrade_of_a_later_one_says_who_must_end_it(
    release: Release, schema: str
) -> None:
    await ready(schema)
    for number, text in ((2, "SELECT 1;"), (3, "SELECT 1;"), (4, "SELECT nothing;")):
        release.add(number, text)
    with pytest.raises(StoreError, match="tables/0004"):
        await apply(schema)
    for number in (4, 3):
        release.drop(number)
    assert await apply(schema) == []
    with pytest.raises(SchemaOutdated, match="needs 2") as caught:
        await ready(schema)
    assert "later release" in caught.value.fix


async def test_a_fresh_schema_whose_making_was_cut_short_is_made_by_the_next_who_opens_it(
    release: Release, schema: str
) -> None:
    release.add(2, "SELECT nothing;")
    with pytest.raises(StoreError, match="tables/0002"):
        await ready(schema)
    release.add(2, "CREATE TABLE lp.two (n integer);")
    await ready(schema)
    assert told(schema) == 1


# -- many at once, and others who work meanwhile


async def test_of_many_who_migrate_at_once_one_does_each_step(release: Release, schema: str) -> None:
    await ready(schema)
    for number in range(2, 8):
        release.add(number, f"CREATE TABLE lp.t{number} (n integer); SELECT pg_sleep(0.02);")
    done = await asyncio.gather(*(apply(schema) for _ in range(6)))
    assert sorted(name for names in done for name in names) == [f"{number:04}" for number in range(2, 8)]


async def test_a_migration_does_not_wait_behind_a_long_transaction_with_everybody_behind_it(
    release: Release, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_MS", 100)
    await ready(schema)
    release.add(2, "ALTER TABLE lp.one ADD COLUMN m integer;")
    with closing(psycopg.connect(shared(SERVER).url)) as long:
        long.execute(f'SELECT * FROM "{schema}".one'.encode())
        migrating = asyncio.create_task(apply(schema))
        for _ in range(20):
            async with asyncio.timeout(30):  # readers wait for as long as the attempt does, and no longer
                await asyncio.to_thread(ask, f'SELECT n FROM "{schema}".one')
            await asyncio.sleep(0.02)
        assert not migrating.done()
        long.rollback()
        assert await migrating == ["0002"]


async def test_what_cannot_be_had_in_time_is_given_up_with_a_reason(
    release: Release, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_MS", 50)
    monkeypatch.setattr(migrate, "PATIENCE_S", 0.5)
    await ready(schema)
    release.add(2, "ALTER TABLE lp.one ADD COLUMN m integer;")
    with closing(psycopg.connect(shared(SERVER).url)) as other:
        other.execute(f'LOCK TABLE "{schema}".one'.encode())
        with pytest.raises(StoreUnreachable, match="lock timeout") as caught:
            await apply(schema)
        assert "pg_stat_activity" in caught.value.fix
        other.rollback()
        other.execute(migrate._lock(schema, "pg_advisory_xact_lock").encode())
        with pytest.raises(StoreUnreachable, match="another process is migrating this schema"):
            await apply(schema)
    monkeypatch.setattr(migrate, "PATIENCE_S", 0.2)
    with pytest.raises(StoreUnreachable, match="could not be reached within"):
        await migrate.apply(parse_postgres("postgresql://u@127.0.0.1:1/x?timeout=0.3"), schema)


# -- what this release ships


def test_the_migrations_of_this_release_apply_and_what_is_printed_does_the_same() -> None:
    server = shared(POSTGRES)
    name = f"printed-{next(_names)}"
    by_hand, by_us = f"{name}.hand", f"{name}.us"
    script = migrate.plan(layout.Layout(False), by_hand).script
    psql = [str(programs(POSTGRES) / "psql"), server.url, "-X", "-q", "-v", "ON_ERROR_STOP=1"]
    answer = subprocess.run(psql, input=script, text=True, capture_output=True, check=False, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")
    asyncio.run(migrate.apply(parse_postgres(server.url), by_us))
    assert catalog(server.url, by_us) == catalog(server.url, by_hand)
    assert remembered(server.url, by_us) == remembered(server.url, by_hand)
    for each in (by_hand, by_us):
        server.ask(f'DROP SCHEMA "{each}" CASCADE')


def test_what_is_printed_gives_up_when_a_table_is_in_use(
    release: Release, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a table's lock makes everybody wait behind it, by hand as well."""
    monkeypatch.setattr(migrate, "LOCK_MS", 20)
    server = shared(SERVER)
    asyncio.run(apply(schema))
    release.add(2, "ALTER TABLE lp.one ADD COLUMN two integer;")
    script = migrate.plan(asyncio.run(layout_of(schema)), schema).script

    def by_hand() -> tuple[int, str]:
        psql = [str(programs(SERVER) / "psql"), server.url, "-X", "-q", "-v", "ON_ERROR_STOP=1"]
        answer = subprocess.run(psql, input=script, text=True, capture_output=True, check=False, timeout=60)
        return answer.returncode, answer.stderr

    with closing(psycopg.connect(server.url)) as busy:
        busy.execute(f'SELECT * FROM "{schema}".one'.encode())
        code, said = by_hand()
    assert code == 3
    assert "lock timeout" in said
    assert by_hand() == (0, "")


# -- what this release and a made-up next one are to each other


def test_a_schema_that_is_upgraded_becomes_what_a_fresh_one_is(tmp_path: Path) -> None:
    """But for functions that nothing calls any more: the migration after that drops what this release has left."""
    server, new = shared(SERVER), make_next(tmp_path)
    fresh, upgraded = fresh_database(server), fresh_database(server)
    limpet(ROOT, "migrate", "--url", upgraded)
    for url in (fresh, upgraded):
        limpet(new, "migrate", "--url", url)
    has, should = catalog(upgraded, "limpet"), catalog(fresh, "limpet")
    assert should - has == set()
    left = {(kind, name) for kind, name, _ in has - should}
    assert {kind for kind, _ in left} <= {"function"}
    assert left & {(kind, name) for kind, name, _ in should} == set(), "there twice"


JOBS = ("job", "wait", "running", "done", "dep", "note", "unique_key")


def test_an_upgrade_waits_for_nobody_who_works_and_nobody_for_it(tmp_path: Path) -> None:
    """Callers' own transactions have all tables of jobs in use, and may stay open for as long as they like."""
    url, new = fresh_database(shared(SERVER)), make_next(tmp_path)
    limpet(ROOT, "migrate", "--url", url)
    with closing(psycopg.connect(url)) as caller, closing(psycopg.connect(url)) as other:
        for table in JOBS:
            caller.execute(f"LOCK TABLE limpet.{table} IN ROW EXCLUSIVE MODE".encode())
        limpet(new, "migrate", "--url", url)  # which gives up after two minutes
        for table in JOBS:
            other.execute(f"LOCK TABLE limpet.{table} IN ROW EXCLUSIVE MODE NOWAIT".encode())


async def test_a_claim_under_way_ends_in_the_verbs_of_the_next_release(tmp_path: Path) -> None:
    """Old text that calls new text; the next claim of this release is answered by the verb that was kept for it."""
    new = make_next(tmp_path)
    async with a_place(SERVER) as place:
        words = ("--url", place.server.url, "--namespace", place.namespace)
        await place.declare(GateRule("limit:k", concurrency=2))
        ids = await place.add_many(2, limits=("k",))
        hand = place.hand()
        await hand.beat()
        with place.holding("SELECT lp.lock(:FLOOR)"):
            claim = start(hand.take())
            await place.until_waiting(1)
            await asyncio.to_thread(limpet, new, "migrate", *words)
        jobs = [await claim, await hand.take()]
        assert [job.id for job in jobs] == ids
        assert place.ask("SELECT release FROM lp.handout ORDER BY token") == [(None,), (THIS,)]
        await hand.succeed(*jobs)
        assert await place.states(ids) == [State.succeeded] * 2
        assert "succeeded" in await asyncio.to_thread(limpet, new, "job", id_text(ids[0]), *words)


async def test_this_release_opens_and_works_on_the_schema_of_the_next_that_lets_it_in(tmp_path: Path) -> None:
    url = fresh_database(shared(SERVER))
    limpet(make_next(tmp_path), "migrate", "--url", url)
    store = open_store(url)
    await store.open()
    bench = Bench(store, Clock())
    await bench.declare(GateRule("limit:k", concurrency=2))
    id = await bench.add(limits=("k",))
    assert await bench.hand().drain() == [id]
    assert await bench.state(id) is State.succeeded
    await store.close()
    assert limpet(ROOT, "migrate", "--url", url, "--plan").count("is up to date") == 1


async def test_this_release_is_refused_by_the_schema_of_the_next_that_does_not_let_it_in(tmp_path: Path) -> None:
    url = fresh_database(shared(SERVER))
    limpet(make_next(tmp_path, min_client=NEXT), "migrate", "--url", url)
    store = open_store(url)
    with pytest.raises(
        SchemaOutdated, match=f"know less than {NEXT} cannot work on it; this one knows {THIS}"
    ) as caught:
        await store.open()
    assert caught.value.fix == "upgrade limpet"
    await store.close()
    answer = ask_limpet(ROOT, "jobs", "--url", url)
    assert answer.returncode != 0
    assert "upgrade limpet" in answer.stderr


CATALOG = """
SELECT 'column', c.relname, concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
  pg_get_expr(d.adbin, d.adrelid))
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = %(schema)s::regnamespace AND a.attnum > 0
UNION ALL SELECT 'relation', relname, concat_ws(' ', relkind, reloptions) FROM pg_class
WHERE relnamespace = %(schema)s::regnamespace
UNION ALL SELECT 'index', tablename, indexdef FROM pg_indexes WHERE schemaname = %(name)s
UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = %(schema)s::regnamespace
UNION ALL SELECT 'function', proname, CASE prokind WHEN 'f' THEN pg_get_functiondef(oid) ELSE prokind::text END
FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
UNION ALL SELECT 'type', typname, typtype::text FROM pg_type WHERE typnamespace = %(schema)s::regnamespace
"""


def catalog(url: str, schema: str) -> set[tuple[str, str, str]]:
    """All that a schema holds, in words that do not name it."""
    with closing(psycopg.connect(url)) as line:
        rows = line.execute(CATALOG, {"schema": f'"{schema}"', "name": schema}).fetchall()
    assert len(rows) > 100
    return {(str(kind), str(name), str(text).replace(schema, "SCHEMA")) for kind, name, text in rows}


def remembered(url: str, schema: str) -> list[tuple[Any, ...]]:
    """What a schema says of its migrations."""
    with closing(psycopg.connect(url)) as line:
        query = f'SELECT number, name, checksum, verbs, min_client FROM "{schema}".migration ORDER BY number'
        return line.execute(query.encode()).fetchall()


# -- the command


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["migrate", *words]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_the_command_plans_prints_applies_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    url = fresh_database(shared(SERVER))
    newest = layout.newest()
    planned = msgspec.json.decode(run(capsys, "--url", url, "--plan", "--json"))
    assert planned == {
        "url": redacted(url),
        "engine": "postgres",
        "state": "outdated",
        "at": 0,
        "needs": newest,
        "pending": [each.name for each in layout.migrations()],
    }
    assert "holds nothing yet" in run(capsys, "--url", url, "--plan")
    assert 'CREATE TABLE "limpet_shop".job (' in run(capsys, "--url", url, "--namespace", "shop", "--sql")
    printed = msgspec.json.decode(run(capsys, "--url", url, "--sql", "--json"))
    assert printed == {**planned, "sql": run(capsys, "--url", url, "--sql")}
    with closing(psycopg.connect(url)) as line:
        assert line.execute("SELECT to_regnamespace('limpet')").fetchone() == (None,), "nothing was changed"
    applied = msgspec.json.decode(run(capsys, "--url", url, "--json"))
    assert (applied["state"], applied["applied"]) == ("up to date", planned["pending"])
    assert msgspec.json.decode(run(capsys, "--url", url, "--json"))["applied"] == []
    assert "is up to date" in run(capsys, "--url", url, "--plan")
    assert run(capsys, "--url", url, "--sql") == ""
    assert msgspec.json.decode(run(capsys, "--url", url, "--plan", "--json"))["state"] == "up to date"


def test_an_old_schema_is_upgraded_by_the_command_and_refused_by_the_others(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    url = fresh_database(shared(SERVER))
    run(capsys, "--url", url)
    release.add(2, "CREATE TABLE lp.two (n integer);")
    assert main(["jobs", "--url", url]) != 0
    assert "limpet migrate" in capsys.readouterr().err
    assert "is at migration 1; this release needs 2" in run(capsys, "--url", url, "--plan")
    run(capsys, "--url", url)
    assert "is up to date" in run(capsys, "--url", url, "--plan")


def test_engines_that_upgrade_themselves_have_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    for word in ("--plan", "--sql"):
        assert "upgrades itself when it is opened" in run(capsys, "--url", url, word, code=2)
    assert not (tmp_path / "jobs.db").exists()
    assert msgspec.json.decode(run(capsys, "--url", url, "--json"))["applied"] == []


async def test_a_store_can_be_asked_what_it_would_do() -> None:
    store = open_store(shared(SERVER).url, f"asked{next(_names)}")
    assert isinstance(store, Migrates)
    assert (await store.plan()).at == 0
    await store.close()
