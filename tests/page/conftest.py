"""One browser for all tests of the page, and a shop in which everything is there to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.page.stage import PATIENCE_S, Stage, staged
from tests.servers.chromium import program

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

Open = Callable[..., Page]

expect.set_options(timeout=PATIENCE_S * 1000)  # a machine under load is slow, and not wrong


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Of a module, not of a session: while it is open an event loop runs in this thread, and no async test could.
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A store with jobs in every state, a worker that works on, and a server for this machine."""
    with staged(tmp_path_factory.mktemp("shop")) as stage:
        stage.fill()
        stage.serve()
        stage.work()
        stage.settled()
        yield stage


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """An empty store of one test's own."""
    with staged(tmp_path) as stage:
        yield stage


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens pages; at the end none may have had an error on its console, nor broken a rule of its own."""
    said: list[str] = []
    contexts = []

    def opened(address: str, *, theme: str = "light", phone: bool = False, expect: str = "h1") -> Page:
        size = PHONE if phone else WIDE
        context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda line: said.append(f"{address}: {line.text}") if line.type == "error" else None)
        page.on("pageerror", lambda error: said.append(f"{address}: {error}"))
        page.on("dialog", lambda dialog: said.append(f"{address}: {dialog.message}"))
        page.goto(address)
        page.wait_for_selector(expect)
        return page

    opened.allowed = ()  # type: ignore[attr-defined]  # parts of lines that a test brings about on purpose
    yield opened
    for context in contexts:
        context.close()
    allowed = opened.allowed  # type: ignore[attr-defined]
    assert [line for line in said if not any(part in line for part in allowed)] == []


def ready(page: Page) -> None:
    """Wait until everything that the page asked for is shown (by a selector: the page's rules allow no eval)."""
    page.wait_for_selector("main:not(:has([aria-busy=true]))")
