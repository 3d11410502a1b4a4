"""The page's files: one document for every page, modules that never change under their name, strict rules for both."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from limpet.ops import Operator
from limpet.server import Api
from limpet.server import page as served
from limpet.server.page import FOLDER, PAGES, POLICY, page_in
from limpet.stores.base import Store
from tests.arch.tree import ROOT
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on

OUR_OWN = {"host": "127.0.0.1:8787", "origin": "http://127.0.0.1:8787", "sec-fetch-site": "same-origin"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small page in place of the one that `make web` builds."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "index.html").write_text('<link href="ASSETS/app.css"><script src="ASSETS/lib/app.js"></script>')
    (tmp_path / "lib" / "app.js").write_text("export const a = 1;\n" * 100)
    (tmp_path / "app.css").write_text("b{}")
    monkeypatch.setattr(served, "FOLDER", tmp_path)
    return tmp_path


async def test_one_document_answers_every_page_with_the_modules_of_its_build(client: Client, built: Path) -> None:
    home = await client.get("/")
    assert (home.status, home.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert home.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY
    (script,) = re.findall(r'src="([^"]+)"', home.raw.decode())
    module = await client.get(f"/{script}", **{"accept-encoding": "gzip, br"})
    assert module.headers["content-type"] == "text/javascript; charset=utf-8"
    assert module.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert gzip.decompress(module.raw) == (built / "lib" / "app.js").read_bytes()
    assert len(module.raw) < 200
    for path in PAGES:
        assert (await client.get(f"/{path}")).raw == home.raw
        deeper = await client.get(f"/{path}/a%2Fb")
        assert deeper.raw.decode() == home.raw.decode().replace('"assets/', '"../assets/')


async def test_a_document_that_has_not_changed_is_not_sent_again(client: Client, built: Path) -> None:
    first = await client.get("/jobs")
    assert first.headers["cache-control"] == "no-cache"
    again = await client.get("/jobs", **{"if-none-match": first.headers["etag"]})
    assert (again.status, again.raw) == (304, b"")
    (built / "app.css").write_text("b{color:red}")
    page_in.cache_clear()
    assert (await client.get("/jobs", **{"if-none-match": first.headers["etag"]})).status == 200


async def test_a_file_of_another_build_is_not_answered(client: Client, built: Path) -> None:
    assert (await client.get("/assets/0123456789abcdef/app.css")).problem == "no_such_route"
    assert (await client.get("/assets/../page.py")).problem == "no_such_route"
    assert (await client.get("/nothing")).problem == "no_such_route"
    assert (await client.post("/jobs")).problem == "method_not_allowed"


async def test_a_checkout_without_the_page_says_how_to_build_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "FOLDER", tmp_path / "nothing")
    refusal = await client.get("/")
    assert (refusal.problem, refusal.json["fix"]) == ("no_such_route", "make web")
    assert (await client.get("/api/v1/stats")).status == 200


async def test_the_page_works_below_any_prefix(store: Store, built: Path) -> None:
    api = Api(app_on(store), settings=GENEROUS, local=True)
    async with api.lifespan():
        client = Client(Starlette(routes=[Mount("/ops/jobs", api)]))
        page = (await client.get("/ops/jobs/dead/abc")).raw.decode()
        (script,) = re.findall(r'src="\.\./(assets/[^"]+)"', page)
        assert (await client.get(f"/ops/jobs/{script}")).status == 200


async def test_a_token_is_exchanged_for_a_cookie_that_works_until_the_token_is_revoked(store: Store) -> None:
    async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
        tokens = Operator(store, "ada").tokens
        made = await tokens.create("operator", name="bob", queues=["mail"])
        client = Client(api, headers=OUR_OWN)
        assert (await client.get("/api/v1/session")).problem == "token_required"
        begun = await client.post("/api/v1/session", {}, authorization=f"Bearer {made.token}")
        assert (begun.json["name"], begun.json["role"], begun.json["queues"]) == ("token:bob", "operator", ["mail"])
        cookie = begun.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        carried = {"cookie": cookie.partition(";")[0]}
        assert (await client.get("/api/v1/session", **carried)).json["signed_in"] is True
        for foreign in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            assert (await client.get("/api/v1/session", **carried, **foreign)).problem == "token_required"
        kept = await client.post("/api/v1/session", {"keep": True}, authorization=f"Bearer {made.token}")
        assert "Max-Age=2592000" in kept.headers["set-cookie"]
        ended = await client.ask("DELETE", "/api/v1/session", headers=carried)
        assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (204, True)
        await tokens.revoke("bob")
        api.tokens.forget()
        assert (await client.get("/api/v1/session", **carried)).problem == "token_required"


async def test_the_jobs_of_some_ids_are_answered_as_they_are_now(store: Store, client: Client) -> None:
    made = [{"task": "a"}, {"task": "b"}, {"task": "c"}]
    ids = [each["id"] for each in (await client.post("/api/v1/jobs", made)).json["jobs"]]
    asked = [ids[2], ids[0], "0190e9b8-0000-7000-8000-000000000000"]
    found = await client.get("/api/v1/jobs?" + "&".join(f"ids={id}" for id in asked))
    assert [each["id"] for each in found.json["jobs"]] == [ids[2], ids[0]]
    assert (await client.get("/api/v1/jobs?ids=mail")).problem == "invalid_option"


def test_the_wheel_brings_the_page_and_the_licences_of_its_libraries(tmp_path: Path) -> None:
    assert (FOLDER / "index.html").is_file(), "run make web"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as packed:
        names = {name.partition("server/assets/")[2] for name in packed.namelist()}
        assert {"index.html", "app.js", "vendor/preact.js", "LICENCES.txt"} <= names
        assert packed.read("limpet/server/assets/LICENCES.txt").count(b"MIT") >= 5


def test_the_page_is_small() -> None:
    """What its document names: other pages, and what draws a flow, are fetched when they are opened."""
    page = page_in(FOLDER)
    assert page is not None
    named = set(re.findall(r'"ASSETS/([^"]+)"', (FOLDER / "index.html").read_text())) & page.files.keys()
    assert {"app.js", "vendor/uplot.js", "pages/Overview.js", "styles/tokens.css"} <= named
    assert not {"pages/Settings.js", "vendor/dagrejs-dagre.js"} & named
    assert sum(len(page.files[name].packed) for name in named) < 150_000
