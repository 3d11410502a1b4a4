"""Every page, in both themes, on a screen and on a phone: readable by all, within its width, without an error."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.page.conftest import Open, ready
from tests.page.shop import HOSTILE
from tests.page.stage import ROOT, Stage

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
RULES = "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
LISTS = (
    *(
        "",
        "queues",
        "queues/webhooks",
        "jobs",
        "jobs?q=state:dead",
        "tasks",
        "tasks/llm.summarise",
        "flows",
        "schedules",
    ),
    *("schedules/embed-new", "dead", "approvals", "limits", "workers", "agents", "audit", "operations", "settings"),
)


def pages(shop: Stage) -> list[str]:
    """Every page, those of one thing with a thing that has much to show."""
    job = shop.read("/jobs?q=task:llm.summarise&limit=1")["jobs"][0]["id"]
    odd = shop.read("/jobs?q=task:odd.text&limit=1")["jobs"][0]
    flow = shop.read("/flows?limit=1")["flows"][0]["id"]
    return [*LISTS, f"flows/{flow}", f"jobs/{job}", f"jobs/{odd['id']}", f"dead/{odd['cause']}"]


def violations(page: Page) -> list[str]:
    """What axe finds, with the rule and the first place of each."""
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate(f"{RULES}.then(({{violations}}) => violations)")
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}" for each in found]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["screen", "phone"])
def test_every_page_can_be_read_by_all(shop: Stage, opened: Open, theme: str, phone: bool) -> None:
    page = opened(shop.url, theme=theme, phone=phone)
    wrong = {}
    for path in pages(shop):
        page.goto(f"{shop.url}/{path}")
        ready(page)
        found = violations(page)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append("it is wider than the window")
        if found:
            wrong[path] = found
    assert wrong == {}


def test_a_text_of_a_job_is_shown_as_the_text_that_it_is(shop: Stage, opened: Open) -> None:
    job = shop.read("/jobs?q=task:odd.text&limit=1")["jobs"][0]
    page = opened(f"{shop.url}/jobs/{job['id']}")
    ready(page)
    assert HOSTILE[:200] in page.locator("main").inner_text().replace("\n", " ")
    assert page.evaluate("document.images.length") == 0
    assert page.locator("main script").count() == 0
    page.goto(f"{shop.url}/jobs?q=%22%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%22")
    page.wait_for_selector(".jobs-found")
    assert page.locator(".chip bdi").inner_text() == '"<img src=x onerror=alert(1)>"'


def test_the_rules_that_the_server_sends_hold(shop: Stage, opened: Open) -> None:
    """Without them the rest would prove little: inline script and markup made of text are refused."""
    opened.allowed = ("TrustedHTML", "TrustedScript")  # type: ignore[attr-defined]
    page = opened(shop.url)
    ready(page)
    page.evaluate("""() => {
        window.broken = [];
        document.addEventListener('securitypolicyviolation', (event) => window.broken.push(event.violatedDirective));
        const script = document.createElement('script');
        const note = (error) => window.broken.push(error.name);
        try { script.text = 'window.ran = true'; document.body.append(script); } catch (error) { note(error); }
        try { document.body.innerHTML = '<b>no</b>'; } catch (error) { note(error); }
    }""")
    assert page.evaluate("window.ran") is None
    assert page.evaluate("window.broken").count("TypeError") == 2
