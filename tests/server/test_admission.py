"""Who comes in: by token, by the user's own hook, or without either from this machine alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from starlette.requests import Request

from limpet.core.access.refusal import TokenRequired, TooManyRequests
from limpet.core.access.role import ROLES
from limpet.core.settings import ServerTable
from limpet.ops import Operator
from limpet.server import Api, Caller
from limpet.server.known_tokens import FRESH_S, KnownTokens
from limpet.server.refused import EACH_S, MOST, Refused
from limpet.server.request_rate import RequestRate
from limpet.stores.base import Store
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on

LOCAL = {"host": "localhost:8787"}
STATS = "/api/v1/stats"


def api_on(store: Store, *, local: bool = True, **settings: object) -> Api:
    return Api(app_on(store), settings=replace(GENEROUS, **settings), local=local)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:8787"},
        {"host": "LOCALHOST."},
        {"host": "[::1]:8787"},
        {"host": "limpet.test:8787"},
        {"host": "127.0.0.1:8787", "origin": "http://127.0.0.1:8787", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1:8787", "sec-fetch-site": "none"},
        {"host": "127.0.0.1:8787", "origin": "https://ops.example.com", "sec-fetch-site": "cross-site"},
    ],
)
async def test_a_request_of_this_machine_needs_no_token(store: Store, headers: dict[str, str]) -> None:
    api = api_on(store, allowed_hosts=["limpet.test"], allowed_origins=["https://ops.example.com"])
    assert (await Client(api, headers=headers).get(STATS)).status == 200


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"host": "evil.example"}, "evil.example"),
        ({}, "Host"),
        ({"host": "[::1].evil.example"}, "evil.example"),
        ({"host": "localhost:80@evil.example"}, "evil.example"),
        ({"host": "localhost", "origin": "http://evil.example"}, "Origin"),
        ({"host": "localhost:8787", "origin": "http://localhost:3000"}, "Origin"),
        ({"host": "localhost", "origin": "null"}, "Origin"),
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, "Sec-Fetch-Site"),
        ({"host": "localhost", "sec-fetch-site": "same-site"}, "Sec-Fetch-Site"),
        ({"host": "localhost", "x-forwarded-for": "127.0.0.1"}, "x-forwarded-for"),
        ({"host": "localhost", "x-forwarded-host": "localhost"}, "x-forwarded-host"),
        ({"host": "localhost", "forwarded": "for=127.0.0.1"}, "forwarded"),
    ],
)
async def test_what_may_come_from_elsewhere_needs_a_token(store: Store, headers: dict[str, str], reason: str) -> None:
    api = api_on(store)
    answer = await Client(api, headers=headers).get(STATS)
    assert (answer.status, answer.problem) == (401, "token_required")
    assert reason in answer.json["detail"]
    assert answer.headers["www-authenticate"].startswith("Bearer")
    made = await Operator(store, "ada").tokens.create("viewer")
    assert (await Client(api, made.token, headers=headers).get(STATS)).status == 200


async def test_other_machines_and_mounted_applications_need_tokens(store: Store) -> None:
    for api, address in ((api_on(store), "203.0.113.5"), (api_on(store, local=False), "127.0.0.1")):
        assert (await Client(api, address=address).get(STATS)).problem == "token_required"
    demanding = api_on(store, loopback_role="none")
    assert (await Client(demanding).get(STATS)).problem == "token_required"
    assert (await Client(api_on(store, loopback_role="viewer"), address="::ffff:127.0.0.1").get(STATS)).status == 200


async def test_a_token_opens_until_it_is_revoked(store: Store) -> None:
    operator = Operator(store, "ada")
    made = await operator.tokens.create("viewer", name="board")
    seconds = 1_000.0
    known = KnownTokens(store, lambda: seconds)
    now_ms = operator.now_ms()
    assert await known.opened_by(made.token, now_ms) is not None
    (listed,) = await operator.tokens.list()
    assert listed.last_used_at is not None
    await operator.tokens.revoke("board")
    assert await known.opened_by(made.token, now_ms) is not None, "it is remembered for a moment"
    seconds += FRESH_S + 0.01
    assert await known.opened_by(made.token, now_ms) is None


async def test_a_token_that_is_new_opens_within_a_second(store: Store) -> None:
    seconds = 1_000.0
    known = KnownTokens(store, lambda: seconds)
    tokens = Operator(store, "ada").tokens
    first = await tokens.create("viewer", expires="1h")
    assert await known.opened_by(first.token, tokens.now_ms()) is not None
    assert await known.opened_by(first.token, tokens.now_ms() + 3_600_000) is None, "expired"
    second = await tokens.create("viewer")
    seconds += 1
    assert await known.opened_by(second.token, tokens.now_ms()) is not None


@pytest.mark.parametrize("sent", ["Bearer x", "Basic abc", "Bearer", "", "Bearer limpet_00000000_" + "0" * 43])
async def test_a_wrong_token_opens_nothing_even_here(store: Store, sent: str) -> None:
    answer = await Client(api_on(store)).get(STATS, authorization=sent)
    assert (answer.status, answer.problem) == (401, "token_invalid")
    assert answer.headers["www-authenticate"] == 'Bearer realm="limpet", error="invalid_token"'


async def test_the_users_own_hook_says_who_asks(store: Store) -> None:
    async def auth(request: Request) -> Caller | None:
        user = request.headers.get("x-user")
        return None if user is None else Caller(f"user:{user}", "viewer", namespace=request.headers.get("x-space"))

    api = Api(app_on(store), auth=auth, settings=GENEROUS)
    client = Client(api)
    assert (await client.get(STATS, x_user="ada")).status == 200
    assert (await client.get(STATS)).problem == "token_required"
    assert (await client.get(STATS, x_user="ada", x_space="elsewhere")).problem == "token_invalid"


def test_a_caller_has_a_rate() -> None:
    seconds = 50.0
    rate = RequestRate("10/s", 3, lambda: seconds)
    for _ in range(3):
        rate.take("token:a")
    rate.take("token:b")
    with pytest.raises(TooManyRequests) as refused:
        rate.take("token:a")
    assert refused.value.retry_after_s == pytest.approx(0.1)
    seconds += 0.1
    rate.take("token:a")
    with pytest.raises(TooManyRequests):
        rate.take("token:a")


async def test_too_many_requests_are_told_when_to_come_back(store: Store) -> None:
    made = await Operator(store, "ada").tokens.create("viewer")
    client = Client(Api(app_on(store), settings=ServerTable(rate="1/d", burst=1)), made.token)
    assert (await client.get(STATS)).status == 200
    answer = await client.get(STATS)
    assert (answer.status, answer.problem) == (429, "too_many_requests")
    assert 0 < int(answer.headers["retry-after"]) <= 86_400


async def test_a_refusal_leaves_a_line_that_names_token_address_and_request(store: Store) -> None:
    operator = Operator(store, "ada")
    made = await operator.tokens.create("viewer", name="board")
    api = api_on(store, local=False)
    await Client(api, made.token, address="203.0.113.5").ask("GET", "/api/v1/tokens")
    unknown = "limpet_00000000_" + "0" * 43
    await Client(api, unknown, address="203.0.113.6").get(STATS)
    await Client(api, address="203.0.113.7").get(STATS)
    await api.close()
    lines = {line.actor: line for line in await operator.audit() if line.kind == "access.refused"}
    assert lines["token:limpet_00000000"].data == {
        "code": "token_invalid",
        "address": "203.0.113.6",
        "asked": "GET /api/v1/stats",
    }
    assert lines["http:203.0.113.7"].data["code"] == "token_required"
    assert not any("0" * 43 in str(line.to_dict()) for line in lines.values())


async def test_a_flood_of_refusals_writes_few_lines(store: Store) -> None:
    seconds = 0.0
    refused = Refused(store, lambda: seconds)
    for number in range(5_000):
        refused.note(TokenRequired("no token"), caller=f"http:{number % 500}", address="a", asked="GET /")
    await refused.close()
    operator = Operator(store, "ada")
    assert len(await operator.audit()) == MOST
    seconds += EACH_S
    refused.note(TokenRequired("no token"), caller="http:1", address="a", asked="GET /")
    await refused.close()
    assert (await operator.audit())[-1].data["unwritten"] == 5_000 - MOST


def test_every_role_may_look() -> None:
    assert all(Caller("x", role).may("viewer") for role in ROLES)
