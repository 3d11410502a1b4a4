"""The audit log and the settings: found, walked and changed, each by who may."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.page.conftest import Open, ready
from tests.page.shop import HOSTILE
from tests.page.stage import Stage
from tests.page.test_pages import violations
from tests.page.test_who_works import answered


def test_the_audit_log_is_walked_back_and_forth_by_kind_and_by_person(bare: Stage, opened: Open) -> None:
    bare.make()
    bare.serve()
    reason = HOSTILE[:200]
    for n in range(60):
        assert bare.ask("PUT", "/weights/tenant:acme", {"weight": n + 2, "reason": f"turn {n}"})[0] == 200
    assert bare.ask("POST", "/pause", {"key": "all", "reason": reason})[0] == 200
    page = opened(f"{bare.url}/audit")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text(reason)
    page.keyboard.press("j")
    page.get_by_role("button", name="Details of line").first.click()
    expect(page.locator("tr.detail")).to_contain_text(reason)
    assert violations(page) == []
    page.get_by_label("What").fill("weight")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("kind=weight"))
    expect(rows.first).to_contain_text("turn 59")
    page.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(10)
    expect(rows.last).to_contain_text("turn 0")
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.go_back()
    expect(rows.first).to_contain_text("turn 59")
    bare.ask("PUT", "/weights/tenant:acme", {"weight": 1, "reason": "the last"})
    bare.ask("POST", "/jobs", {"task": "email.send"})  # the page hears of jobs, and looks at the log again
    expect(page.locator(".newrows")).to_contain_text("1 new, press n to show them")
    expect(rows.first).to_contain_text("turn 59")
    page.keyboard.press("n")
    expect(rows.first).to_contain_text("the last")
    page.get_by_label("Who").fill("nobody of that name")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No line matches")).to_be_visible()


def test_a_token_is_made_shown_once_and_revoked(bare: Stage, opened: Open) -> None:
    bare.make()
    bare.serve()
    page = opened(f"{bare.url}/settings")
    page.get_by_role("button", name="Create token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("producer", exact=True).click()
    assert violations(page) == []
    dialog.get_by_role("textbox", name="Name").fill("shop-web")
    dialog.get_by_role("textbox", name="Queues").fill("mail, pdf")
    dialog.get_by_role("button", name="Create 1 token").click()
    text = dialog.locator("code").inner_text()
    assert bare.ask("GET", "/session", token=text)[1]["queues"] == ["mail", "pdf"]
    page.get_by_role("button", name="I have copied it").click()
    assert text not in page.content()
    page.get_by_role("button", name="Revoke… shop-web").click()
    answered(page, "Revoke 1 token")
    expect(page.get_by_text("There is no token.")).to_be_visible()
    bare.until(lambda: bare.ask("GET", "/session", token=text)[0] == 401)
    page.get_by_role("link", name="Show revoked ones").click()
    expect(page.locator("tbody tr")).to_contain_text("revoked")


def test_single_keys_can_be_switched_off(bare: Stage, opened: Open) -> None:
    bare.make()
    bare.serve()
    page = opened(f"{bare.url}/settings")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_label("Single keys act").uncheck()
    page.locator("main").focus()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_label("Single keys act").check()
    page.locator("main").focus()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_viewer_sees_these_pages_with_their_actions_locked(bare: Stage, opened: Open) -> None:
    bare.make()
    bare.run("limpet.cli", "schedules", "add", "report", "--every", "1h")
    (bare._folder / "limpet.toml").write_text('[server]\nloopback_role = "viewer"\n')
    bare.serve()
    page = opened(f"{bare.url}/schedules/report")
    button = page.get_by_role("button", name="Pause…")
    expect(button).to_have_attribute("title", "This needs the role operator")
    button.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{bare.url}/settings")
    ready(page)
    expect(page.get_by_text("Seeing and changing tokens needs the role admin.")).to_be_visible()
    expect(page.get_by_role("button", name="Create token…")).to_have_attribute("aria-disabled", "true")
    assert bare.ask("POST", "/schedules/report/pause", {})[0] == 403
