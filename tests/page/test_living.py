"""A page stays true while it is open: numbers follow, rows keep their places, and a lost server is found again."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.page.conftest import Open, ready
from tests.page.stage import Stage


def test_new_jobs_wait_until_they_are_asked_for_and_rows_change_in_place(bare: Stage, opened: Open) -> None:
    bare.fill()
    bare.serve()
    page = opened(f"{bare.url}/jobs?q=queue:email")
    page.wait_for_selector("tbody tr")
    first = page.locator("tbody tr th a").first.get_attribute("href")
    expect(page.locator("tbody tr").first).to_contain_text("scheduled")
    bare.ask("POST", "/jobs", [{"task": "email.send", "args": {"to": str(n)}, "queue": "email"} for n in range(3)])
    expect(page.locator(".newrows")).to_contain_text("3 new, press n to show them")
    assert page.locator("tbody tr th a").first.get_attribute("href") == first
    bare.work()
    expect(page.locator("tbody tr").nth(3)).to_contain_text("succeeded")
    assert page.locator("tbody tr th a").first.get_attribute("href") == first
    page.keyboard.press("n")
    expect(page.locator(".newrows")).to_have_count(0)
    expect(page.locator("tbody tr").first).to_contain_text("succeeded")


def test_a_server_that_is_gone_is_said_and_found_again(bare: Stage, opened: Open) -> None:
    bare.fill()
    server = bare.serve()
    page = opened(bare.url)
    ready(page)
    ready_now = page.locator(".ledger .ready strong")
    before = int(ready_now.inner_text())
    opened.allowed = ("net::ERR_",)  # type: ignore[attr-defined]  # each request that finds no server
    server.kill()
    server.wait()
    expect(page.locator(".banner")).to_contain_text("The server does not answer")
    expect(ready_now).to_have_text(str(before))  # the numbers stay, with their age
    bare.serve()
    expect(page.locator(".banner")).to_have_count(0)
    bare.ask("POST", "/jobs", {"task": "email.send", "args": {"to": "ada"}, "queue": "email"})
    expect(ready_now).to_have_text(str(before + 1))
    page.keyboard.press("r")
    expect(page.locator(".live")).to_have_text("Paused updates, press r to pause")
