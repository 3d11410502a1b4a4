"""What people do on the page, by hand and by key: the server does it, and says who did it and why."""

from __future__ import annotations

import re
from typing import Any, Final

from playwright.sync_api import Page, expect

from tests.page.conftest import Open
from tests.page.stage import Stage

BIG = 9_007_199_254_740_993  # the first whole number that JavaScript's own cannot hold


def newest(stage: Stage, q: str) -> dict[str, Any]:
    """The newest job that matches."""
    found: dict[str, Any] = stage.read(f"/jobs?limit=1&q={q}")["jobs"][0]
    return found


def said(stage: Stage, kind: str) -> list[dict[str, Any]]:
    """The lines of the audit log of one kind."""
    return [line for line in stage.read("/audit?limit=500")["audit"] if line["kind"] == kind]


def test_a_dead_job_is_edited_and_replayed_with_its_numbers_exact(shop: Stage, opened: Open) -> None:
    job = newest(shop, "task:pdf.invoice%20state:dead")
    page = opened(f"{shop.url}/jobs/{job['id']}")
    page.get_by_role("button", name="Edit and replay…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Patch").fill(f'{{"order": {BIG}, "customer": {{"vat_id": "DE1"}}}}')
    expect(dialog.get_by_label("Preview")).to_contain_text(f"+ order: {BIG}")
    dialog.get_by_label("Reason").fill("the id was missing")
    dialog.get_by_role("button", name="Replay 1 job").click()
    expect(page.get_by_role("status")).to_contain_text("1 job retried")
    expect(page.locator(".jobhead")).to_contain_text("succeeded")  # a worker ran it, and the page heard of it
    shown = shop.read(f"/jobs/{job['id']}")
    assert shown["result"] == f"DE1-{BIG}"
    assert (said(shop, "job.retry")[-1]["reason"], said(shop, "job.retry")[-1]["job"]) == (
        "the id was missing",
        job["id"],
    )
    page.get_by_role("button", name="Result", exact=True).click()
    expect(page.locator(".tree")).to_contain_text(str(BIG))


def test_selected_jobs_are_cancelled_after_a_look_at_what_would_happen(shop: Stage, opened: Open) -> None:
    page = opened(f"{shop.url}/jobs?q=state:scheduled%20task:llm.summarise")
    page.wait_for_selector("tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="What is selected")).to_contain_text("1 selected")
    page.keyboard.press("Shift+C")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Cancel 1 job?")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert said(shop, "job.cancel") == []
    page.get_by_role("button", name="Cancel…").click()
    dialog.get_by_label("Reason").fill("not needed")
    dialog.get_by_role("button", name="Cancel 1 job").click()
    expect(page.get_by_role("status")).to_contain_text("1 job cancelled")
    assert said(shop, "job.cancel")[-1]["reason"] == "not needed"
    expect(page.locator("tbody tr").first).to_contain_text("cancelled")  # in its place, though it no longer matches


def test_a_cause_is_assigned_resolved_and_replayed_by_an_operation(shop: Stage, opened: Open) -> None:
    page = opened(f"{shop.url}/dead")
    page.locator(".cause", has_text="ReadTimeout").click()
    expect(page).to_have_url(re.compile("/dead/[0-9a-f]+"))
    page.get_by_role("button", name="Assign…").click()
    page.get_by_label("To", exact=True).fill("ada")
    page.get_by_role("button", name="Assign it").click()
    expect(page.locator(".figures")).to_contain_text("ada")
    page.get_by_role("button", name="Resolve…").click()
    page.get_by_role("button", name="Resolve it").click()
    expect(page.locator(".opened-cause .pill")).to_have_text("resolved")
    page.get_by_role("button", name="Replay one first…").click()
    page.get_by_text("All, 5 per second").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile(r"Replay \d+ jobs")).click()
    expect(page.get_by_role("status")).to_contain_text("The operation is under way")
    (operation,) = shop.read("/operations")["operations"]
    assert (operation["verb"], operation["per_second"], operation["stop_after"]) == ("retry", 5, 10)
    expect(page.locator(".opened-cause .pill")).to_have_text("regressed")  # they die again


# On which page, the button, what the dialog is told, its own button, and what is said afterwards.
ACTIONS: Final[tuple[tuple[str, str, dict[str, str], str, str], ...]] = (
    ("queues", "Pause crm", {"Reason": "a test"}, "Pause it", "Queue crm is paused. 0 running jobs continue."),
    ("queues", "Resume crm", {}, "Resume it", "Queue crm is resumed."),
    ("tasks/crm.sync", "Pause…", {}, "Pause it", "Task crm.sync is paused."),
    ("tasks/crm.sync", "Resume…", {}, "Resume it", "Task crm.sync is resumed."),
    ("approvals", "Approve: Refund $19", {"Comment": "fine"}, "Approve it", "continues"),
    ("schedules", "Run now… billing-close", {}, "Run it now", "A run of billing-close was asked for."),
    ("schedules/billing-close", "Pause…", {}, "Pause it", "billing-close is paused."),
    ("schedules/billing-close", "Resume…", {}, "Resume it", "billing-close ticks again."),
    ("limits", "Reset payments", {}, "Reset it", "Breaker payments is closed."),
    ("limits", "Set limit:webhook slots", {"At once": "7"}, "Set it", "is set."),
    ("limits", "Clear limit:webhook slots", {}, "Clear it", "is cleared."),
)


def test_every_page_does_what_its_buttons_say(shop: Stage, opened: Open) -> None:
    page = opened(shop.url)
    for path, button, told, do, answer in ACTIONS:
        page.goto(f"{shop.url}/{path}")
        page.get_by_role("button", name=button).first.click()
        dialog = page.get_by_role("dialog")
        for label, text in told.items():
            dialog.get_by_label(label).fill(text)
        dialog.get_by_role("button", name=do, exact=True).click()
        expect(page.get_by_role("status")).to_contain_text(answer)
        expect(dialog).to_have_count(0)
    kinds = {line["kind"] for line in shop.read("/audit?limit=500")["audit"]}
    assert {"queue.pause", "queue.resume", "schedule.run", "schedule.pause"} <= kinds


def test_keys_lead_everywhere(shop: Stage, opened: Open) -> None:
    page = opened(shop.url)
    for keys, title in (("gj", "Jobs"), ("gd", "Dead letters"), ("go", "Overview")):
        for key in keys:
            page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Show new rows")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    job = newest(shop, "task:crm.sync")
    page.keyboard.press("Control+k")
    page.keyboard.type(job["id"][-8:])
    page.get_by_role("option", name="crm.sync").wait_for()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{shop.url}/jobs/{job['id']}")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("/")
    page.keyboard.type("state:de")
    page.get_by_role("option", name="dead").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=state%3Adead"))
    expect(page.locator(".chip")).to_contain_text("dead")
    page.keyboard.press("Tab")  # to "Copy as CLI"
    assert focused(page) == "Copy as CLI"
    page.keyboard.press("Enter")
    assert page.evaluate("navigator.clipboard.readText()") == "limpet jobs 'state:dead'"


def focused(page: Page) -> str:
    """The text of what has the focus."""
    return str(page.evaluate("document.activeElement.textContent")).strip()


def test_a_viewer_sees_what_an_operator_does_and_may_not_do_it(bare: Stage, opened: Open) -> None:
    opened.allowed = ("status of 401", "status of 403")  # type: ignore[attr-defined]  # what it comes for
    bare.fill()
    (bare._folder / "limpet.toml").write_text('[server]\nloopback_role = "none"\n')
    bare.serve()
    token = bare.run("limpet.cli", "tokens", "create", "--role", "viewer", "--json").decode()
    text = re.search(r'"token": ?"([^"]+)"', token)
    assert text is not None
    page = opened(bare.url)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#token-note")).to_contain_text("opens nothing")
    page.get_by_label("Token").fill(text[1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".side .foot")).to_contain_text("viewer")
    cookie = next(each for each in page.context.cookies() if each["name"] == "limpet")
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    job = bare.ask("GET", "/jobs?limit=1&q=task:email.send%20state:scheduled", token=text[1])[1]["jobs"][0]["id"]
    page.goto(f"{bare.url}/jobs/{job}")
    button = page.get_by_role("button", name="Cancel…")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", "This needs the role operator")
    expect(page.locator(".locked")).to_have_text("Changing a job needs the role operator.")
    button.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    asked = f"fetch('../api/v1/jobs/{job}/cancel', {{method: 'POST'}}).then((answer) => answer.status)"
    assert page.evaluate(asked) == 403
