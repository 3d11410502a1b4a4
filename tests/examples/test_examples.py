"""The examples run as they stand and say what their first lines promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.servers.postgres import fresh_database, shared

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, folder: Path, **environment: str) -> list[str]:
    """The lines that an example prints, run in an empty folder."""
    command = [sys.executable, str(EXAMPLES / name)]
    env = {**os.environ, **environment}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert list(folder.iterdir()) == []
    return ran.stdout.splitlines()


def test_hello(tmp_path: Path) -> None:
    assert run("hello.py", tmp_path) == ["Hello, Ada"]


def test_emails_overtake_exports_and_small_customers_get_their_turn(tmp_path: Path) -> None:
    email, acme = run("email_and_exports.py", tmp_path)
    assert int(re.findall(r"place (\d+)", email)[0]) <= 5
    assert int(re.findall(r"place (\d+)", acme)[0]) <= 30


def test_a_dead_letter_is_corrected_and_runs_again(tmp_path: Path) -> None:
    assert run("fix_and_retry.py", tmp_path) == [
        "ada: sent to ada@example.com",
        "bob: dead",
        "1 dead: holdfast.Dead: 'bob at example.com' is no address",
        "bob: sent to bob@example.com",
        "carol did job.retry: typing error",
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
        "refused: no job of 'ask' can start with this cost: it needs $3, and Budget('llm:{team}') is $1 a day: "
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
    url = fresh_database(shared("postgres-15"))
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
