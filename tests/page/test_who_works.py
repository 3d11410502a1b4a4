"""Workers, agents and schedules: what they do is seen, and corrected by who may."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, expect

from tests.page.conftest import Open, ready
from tests.page.lent import QUESTION, lend
from tests.page.stage import Stage
from tests.page.test_pages import violations


def answered(page: Page, button: str) -> None:
    """Press the button of the dialog; the server has done it once the dialog is gone."""
    page.get_by_role("dialog").get_by_role("button", name=button).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_worker_opens_by_key_and_names_what_it_runs(shop: Stage, opened: Open) -> None:
    page = opened(f"{shop.url}/workers")
    page.wait_for_selector("tbody tr")
    (worker,) = (each for each in shop.read("/workers")["workers"] if each["info"].get("concurrency"))
    expect(page.locator("tbody tr").first).to_contain_text(f"1/{worker['info']['concurrency']}")
    fold = page.get_by_role("button", name=f"Details of {worker['session']}")
    fold.focus()
    page.keyboard.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(fold).to_be_focused()
    expect(page).to_have_url(re.compile("/workers/."))
    expect(page.locator("tr.detail")).to_contain_text("export.orders")
    assert violations(page) == []
    longest = page.locator("section", has_text="Longest running")
    expect(longest).to_contain_text("of 3,000 rows")
    longest.get_by_role("button", name="Cancel… job").click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel 1 job")
    page.keyboard.press("Escape")
    page.go_back()
    expect(page).not_to_have_url(re.compile("/workers"))


def test_a_schedule_is_paused_resumed_run_and_backfilled(shop: Stage, opened: Open) -> None:
    page = opened(f"{shop.url}/schedules/billing-close")
    row = page.locator("tr.open")
    expect(page.locator("tr.detail .nextfive").first.locator("li")).to_have_count(5)
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("Reason").fill("the books are open")
    answered(page, "Pause it")
    expect(row).to_contain_text("paused")
    paused = shop.read("/schedules/billing-close")
    assert (paused["state"], paused["paused_reason"]) == ("paused", "the books are open")
    expect(page.locator("tr.detail")).to_contain_text("the books are open")
    page.get_by_role("button", name="Resume…").click()
    answered(page, "Resume it")
    expect(row).not_to_contain_text("paused")
    page.get_by_role("button", name="Run now… billing-close").first.click()
    answered(page, "Run it now")
    page.get_by_role("button", name="Backfill…").click()
    page.get_by_label("First tick").fill("2026-11-01T00:00")
    page.get_by_label("Last tick").fill("2026-11-03T23:00")
    expect(page.get_by_label("Dry run")).to_contain_text("3")
    assert violations(page) == []
    answered(page, "Ask for 3 runs")
    expect(page.get_by_role("status")).to_contain_text("3 runs of billing-close were asked for")
    ticks = {each["at"][:10] for each in shop.read("/schedules/billing-close")["ticks"] if each["fired"]}
    kinds = {each["kind"] for each in shop.read("/audit?kind=schedule")["audit"]}
    assert kinds >= {"schedule.pause", "schedule.resume", "schedule.run", "schedule.backfill"}, (kinds, ticks)


def test_a_lease_is_taken_back_and_a_question_is_answered(bare: Stage, opened: Open) -> None:
    bare.make()
    bare.serve()
    held = lend(bare)
    page = opened(f"{bare.url}/agents")
    row = page.locator("tr", has_text="eng-1")
    expect(row).to_contain_text("tests written")
    expect(row).to_contain_text(re.compile(r"1[45]m.* left"))
    expect(page.get_by_text("No live agent has design")).to_be_visible()
    ready(page)
    assert violations(page) == []
    row.get_by_role("button", name="Take back… the lease of eng-1").click()
    page.get_by_label("Reason").fill("it hangs")
    answered(page, "Take it back")
    expect(row).to_have_count(0)
    job: dict[str, Any] = held["eng-1"]
    assert bare.read(f"/jobs/{job['id']}")["state"] == "ready"
    status, refusal = bare.ask("POST", f"/leases/{job['id']}/heartbeat", {"token": job["token"]})
    assert (status, refusal["code"]) == (409, "lease_lost")
    page.get_by_role("button", name=f"Answer… {QUESTION}").click()
    page.get_by_role("textbox", name="Answer").fill("yes, after lunch")
    answered(page, "Answer 1 question")
    expect(page.get_by_text("No agent asks anything.")).to_be_visible()
    assert bare.read(f"/jobs/{held['writer']['id']}")["state"] == "ready"
