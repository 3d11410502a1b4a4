"""The OpenAPI document: it says what the table says, and the server does what it says (schemathesis)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from limpet.core.records.explanation import Explanation
from limpet.core.records.job import JobDetail
from limpet.core.records.live import JobEvent, LiveEvent
from limpet.ops import Operator
from limpet.server.examples import LATER_S, OF, SAID, example_of
from limpet.server.openapi import _item, _structs, document, parts_of
from limpet.server.route import PREFIX
from limpet.server.table import ROUTES
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.arch.tree import ROOT
from tests.server.asking import Client
from tests.server.served import served
from tests.server.town import Half, path_of, town

SEED = "1"
SHORT = [route for route in ROUTES if not route.stream]  # a stream would take as long as schemathesis waits
SETTINGS = """
[server]
loopback_role = "none"
rate = "1000000/s"

[alerts.webhooks.nowhere]
url = "http://127.0.0.1:9/"
"""
CHECKS = """
[phases.coverage]
unexpected-methods = ["TRACE"]

[phases.stateful]
generation.max-examples = 12

[checks]
# Queries, durations and names are texts that may make no sense: 422, but never for their shape (a check of ours).
positive_data_acceptance.expected-statuses = ["2xx", "304", "401", "403", "404", "409", "412", "413", "422", "429"]
"""


def test_the_document_has_each_route_with_its_role() -> None:
    paths = document(ROUTES)["paths"]
    found = {(method.upper(), path): each for path, methods in paths.items() for method, each in methods.items()}
    assert {*found} == {(route.method, route.full_path) for route in ROUTES}
    for route in ROUTES:
        described = found[route.method, route.full_path]
        assert described.get("x-limpet-role") == route.role
        assert bool(described["security"]) == (route.role is not None)
        assert described["summary"] == route.summary
        assert ("requestBody" in described) == (route.method in ("POST", "PUT", "PATCH"))
        names = [each["name"] for each in described["parameters"] if each["in"] == "path"]
        assert names == re.findall(r"\{(\w+)\}", route.path)
    ids = [each["operationId"] for each in found.values()]
    assert len(ids) == len(set(ids))


def test_whatever_the_document_refers_to_is_there() -> None:
    whole = document(ROUTES)
    text = json.dumps(whole)
    for kind in ("schemas", "examples"):
        used = set(re.findall(rf"#/components/{kind}/([\w.]+)", text))
        assert used == {*whole["components"][kind]}
    ids = {each["operationId"] for methods in whole["paths"].values() for each in methods.values()}
    assert {*re.findall(r'"operationId": "(\w+)"', text)} == ids, "links name operations"


def test_each_example_is_a_body_that_the_route_takes() -> None:
    for route in ROUTES:
        if route.example is not None:
            msgspec.convert(route.example, route.body)


def test_each_answer_has_an_example_that_its_schema_takes() -> None:
    whole, seen = document(ROUTES), set()
    for path, methods in whole["paths"].items():
        for method, described in methods.items():
            for status, answer in described["responses"].items():
                for content in answer.get("content", {}).values():
                    shown = [each["$ref"].rpartition("/")[2] for each in content.get("examples", {}).values()]
                    assert shown or "example" in content or path == "/openapi.json", (method, path, status)
                    for name in shown:
                        schema = {"components": whole["components"], **content["schema"]}
                        jsonschema_rs.validate(schema, whole["components"]["examples"][name]["value"])
                        seen.add(name)
    assert seen == {*whole["components"]["examples"]}


def test_the_examples_are_about_one_job() -> None:
    shown = example_of(JobDetail)
    assert (shown["state"], shown["error"], shown["history"][-1]["error"]) == ("dead", "TimeoutError", "TimeoutError")
    assert example_of(Explanation)["id"] == shown["id"] == example_of(JobEvent)["job"]


def test_what_is_said_in_examples_is_said_of_fields_that_there_are() -> None:
    answered = [part for route in ROUTES for part in parts_of(_item(route)) if part != dict[str, Any]]
    records = {each.cls.__name__: {*each.cls.__struct_fields__} for each in _structs([*answered, *get_args(LiveEvent)])}
    assert {*SAID, *LATER_S} - set().union(*records.values()) == set()
    assert {name: {*said} - records.get(name, set()) for name, said in OF.items() if {*said} - records[name]} == {}


def test_the_page_of_routes_is_that_of_the_table() -> None:
    """Drawn from the table; `python tools/http_reference.py` writes it."""
    from tools.http_reference import PAGE, page

    assert PAGE.read_text() == page(), "run python tools/http_reference.py"


async def test_the_document_is_served_with_the_prefix_of_its_place(client: Client) -> None:
    assert (await client.get("/openapi.json")).json["servers"] == [{"url": "/"}]


@pytest.mark.timeout(400)
async def test_the_server_does_what_the_document_says(tmp_path: Path) -> None:
    """All checks of schemathesis, with links, over a real server; each route succeeds at least once."""
    (tmp_path / "limpet.toml").write_text(SETTINGS)
    (tmp_path / "schemathesis.toml").write_text(CHECKS)
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    halves, token = await filled(store)
    await store.close()
    (tmp_path / "openapi.json").write_text(json.dumps(with_names(document(SHORT), halves)))
    answered = tmp_path / "answered"
    async with served(tmp_path) as (_, banner):
        command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", banner["listens"]]
        command += ["--checks", "all", "--max-examples", "2", "--seed", SEED, "--workers", "1", "--no-color"]
        command += ["-H", f"Authorization: Bearer {token}", "--continue-on-failure"]
        hooks = {"SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks", "LIMPET_ANSWERED": str(answered)}
        env = {**os.environ, **hooks, "PYTHONPATH": str(ROOT)}
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env, stdout=PIPE, stderr=STDOUT)
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-8_000:]
    found = set(answered.read_text().splitlines())
    # A lease ends with the token of a claim, which schemathesis does not know: tests/server/test_leases.py does it.
    expected = {f"{route.method} {route.full_path}" for route in SHORT if not route.path.startswith("/leases")}
    assert expected - found == set()


async def filled(store: Store) -> tuple[Half, str]:
    """Something of everything, and a token."""
    half, _ = await town(store)
    made = await Operator(store, "ada").tokens.create("admin", name="schemathesis")
    return half, made.token


def with_names(whole: dict[str, Any], half: Half) -> dict[str, Any]:
    """The document, with names of things that there are as the examples of path parameters."""
    for path, methods in whole["paths"].items():
        for method, described in methods.items():
            for each in described["parameters"]:
                if each["in"] == "path":
                    begin, _, rest = path.removeprefix(PREFIX).partition("{")
                    meant = path_of(path.removeprefix(PREFIX), half, "mail")
                    if method == "delete":  # what is removed is no other route's example
                        meant = meant.replace("mail.schedule", "mail.second").replace("mail.type", "mail.other")
                    each["example"] = meant.removeprefix(begin).removesuffix(rest.partition("}")[2])
    return whole
