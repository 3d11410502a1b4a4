"""The examples run as they stand and say what their first lines promise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.installations import POSTGRES
from tests.servers.postgres import fresh_database, shared

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, folder: Path, **environment: str) -> list[str]:
    """The lines that an example prints, run in an empty folder."""
    command = [sys.executable, str(EXAMPLES / name)]
    env = {**os.environ, **environment}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert list(folder.iterdir()) == []
    return ran.stdout.splitlines()


def test_hello(tmp_path: Path) -> None:
    assert run("hello.py", tmp_path) == ["Hello, Ada"]


def test_emails_overtake_exports_and_small_customers_get_their_turn(tmp_path: Path) -> None:
    email, acme = run("email_and_exports.py", tmp_path)
    assert int(re.findall(r"place (\d+)", email)[0]) <= 5
    assert int(re.findall(r"place (\d+)", acme)[0]) <= 30


def test_a_receiver_hears_that_an_alert_fires_and_that_it_has_resolved(tmp_path: Path) -> None:
    waits = "dead_letters:mail: 1 dead job waits for a person in queue mail: mail.send (1)"
    assert run("alerts.py", tmp_path) == [f"firing {waits}", f"resolved {waits}"]


def test_a_team_of_agents_shares_a_list_of_tasks(tmp_path: Path) -> None:
    assert run("team.py", tmp_path) == [
        "the same ticket is the same job: True",
        "cancelled with what depends on it: 2",
        "released by ops.release, after 3 scans",
        "the breaker of ops.scan opened 2 time(s), and is closed",
        "1 dead: no wording was given",
        "ada retried it: the wording was missing",
    ]


def test_a_dead_letter_is_corrected_and_runs_again(tmp_path: Path) -> None:
    assert run("fix_and_retry.py", tmp_path) == [
        "ada: sent to ada@example.com",
        "bob: dead",
        "1 dead: limpet.Dead: 'bob at example.com' is no address",
        "bob: sent to bob@example.com",
        "carol did job.retry: typing error",
    ]


def test_the_api_is_mounted_with_its_users_own_login(tmp_path: Path) -> None:
    assert run("mounted.py", tmp_path) == [
        "bob sees mail.send: ready",
        "bob: 403 user:bob has the role viewer, and this needs operator",
        "ada: queue:mail is paused",
        "a stranger: 401 Token required",
    ]


def test_a_board_counts_what_happens(tmp_path: Path) -> None:
    assert run("watch.py", tmp_path) == ["ready: 20", "running: 20", "succeeded: 19", "dead: 1"]


def test_hooks_hear_of_a_death_and_of_what_it_takes_along(tmp_path: Path) -> None:
    *heard, shipped = run("hooks.py", tmp_path)
    assert sorted(heard) == [
        "alert: charge of order 2 died: the card has expired",
        "mail: order 2 will not be shipped",
    ]
    assert shipped == "order 1 is on its way"


def test_a_secret_is_used_and_shown_to_no_one(tmp_path: Path) -> None:
    mask = "•••redacted•••"
    card = {"number": mask, "holder": "Ada"}
    assert run("secret_arguments.py", tmp_path) == [
        f"arguments: { ({'order': 7, 'card': card, 'pin': mask}) }",
        f"error: order 7: the pin '{mask}' is not that of {mask}",
        "search: args.card.number cannot be searched by: the rule 'card.number' hides it",
        "after the edit: succeeded",
        f"the audit log: { ({'pin': mask}) } became { ({'pin': mask}) }",
    ]


def test_a_budget_admits_what_it_can_pay_and_lets_the_rest_wait(tmp_path: Path) -> None:
    assert run("budget.py", tmp_path) == [
        "succeeded, spent 0.20",
        "succeeded, spent 0.35",
        "succeeded, spent 0.05",
        "succeeded, spent 0.20",
        "ready, spent 0.00",
        "succeeded, spent 0.05",
        "the budget 'llm:acme' has $0.20 of $1 left today; this job needs $0.30",
        "refused: no job of 'ask' can start with this cost: it needs $3, and the budget 'llm:acme' is $1 a day: "
        "it would wait for ever",
        "an answer to the usual question",
    ]


def test_a_flow_is_finished_after_what_died_in_it_was_retried(tmp_path: Path) -> None:
    assert run("flow.py", tmp_path) == [
        "sales: succeeded",
        "stock: dead",
        "render: cancelled",
        "report: 5 sold, 5 in stock",
        "total: 332833500",
    ]


def test_orders_that_commit_get_their_receipt_once_although_a_relay_is_killed(tmp_path: Path) -> None:
    assert run("outbox.py", tmp_path) == ["receipt for order 1", "receipt for order 3", "receipt for order 4"]


def test_transfers_of_a_bank_happen_once(tmp_path: Path) -> None:
    url = fresh_database(shared(POSTGRES))
    books = [
        "ada has 80",
        "bob has 120",
        "70 from ada to bob: done",
        "50 from bob to ada: done",
        "500 from ada to bob: refused",
    ]
    assert run("bank.py", tmp_path, BANK_URL=url) == books
    assert run("bank.py", tmp_path, BANK_URL=url) == books


def test_an_agent_pays_for_each_call_once_although_answers_are_lost(tmp_path: Path) -> None:
    """It starts "provider.py" by itself."""
    assert run("agent.py", tmp_path) == [
        "(review (draft with (facts for (outline bees)) and (quotes for (outline bees))))",
        "2 attempts failed",
        "7 calls, 5 payments",
    ]


def ask(url: str, **body: object) -> tuple[int, dict[str, str], dict[str, Any]]:
    try:
        with urllib.request.urlopen(url + "/answers", json.dumps(body).encode(), timeout=60) as response:
            return response.status, dict(response.headers), json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers), json.load(refused)


@contextmanager
def provider(*options: str) -> Iterator[str]:
    command = [sys.executable, str(EXAMPLES / "model_provider.py"), "--slow", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_model_provider_refuses_as_real_ones_do() -> None:
    """With it 8 workers of "models.py" are measured, in tests/chaos/test_models.py."""
    with provider("--requests", "3/h", "--tokens", "100/h", "--burst-s", "3600", "--spend", "0.0008") as url:
        assert ask(url, prompt="bees", max_tokens=48)[2]["usage"] == {"tokens": 50, "usd": 0.0005}
        status, headers, said = ask(url, prompt="bees", max_tokens=60)
        assert (status, said["error"]["code"]) == (429, "insufficient_quota")
        assert "Retry-After" not in headers
    with provider("--requests", "2/h", "--tokens", "100/h", "--burst-s", "3600") as url:
        assert ask(url, prompt="bees", max_tokens=48)[0] == 200
        status, headers, said = ask(url, prompt="bees", max_tokens=60)  # too many tokens
        assert (status, said["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 400 < float(headers["Retry-After"]) <= 432
        assert headers["x-ratelimit-remaining-tokens"] == "50"
        assert ask(url, prompt="bees")[0] == 200
        assert ask(url, prompt="bees")[0] == 429  # too many requests
        with urllib.request.urlopen(url + "/report", timeout=60) as response:
            report = json.load(response)
        assert (report["calls"], report["accepted"], report["refused"]) == (4, 2, 2)
        assert 0.99 < report["requests_used"] <= 1
    with provider("--overload", "2") as url:
        status, _, said = ask(url, prompt="bees")
        assert (status, said["error"]["code"]) == (529, "overloaded_error")


def test_a_schedule_ticks_and_is_backfilled_across_a_change_of_clocks(tmp_path: Path) -> None:
    assert run("schedule.py", tmp_path) == [
        "two ticks, 1 s apart",
        "every day at 02:30 Europe/Berlin",
        "sales report for 2026-03-28 01:30 UTC",
        "sales report for 2026-03-29 01:00 UTC",
        "sales report for 2026-03-30 00:30 UTC",
    ]


def test_every_example_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.name}"' not in source] == []
