"""Takes a picture of every page in both themes, of a shop with a worker and a server of its own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import sync_playwright

from tests.page.stage import ROOT, Stage, staged
from tests.servers.chromium import program

TARGET = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, QUALITY = 1280, 800, 50
PAGES = (
    *("", "jobs", "queues/billing", "tasks", "flows", "schedules/embed-new", "dead", "approvals", "limits"),
    *("workers", "agents", "audit", "operations", "settings"),
)


def main() -> int:
    with TemporaryDirectory() as name, staged(Path(name)) as stage:
        stage.fill()
        stage.serve()
        stage.work()
        stage.settled()
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        for theme in ("light", "dark"):
            take(stage, theme)
    sizes = sum(path.stat().st_size for path in TARGET.iterdir())
    sys.stdout.write(f"shots: {len(list(TARGET.iterdir()))} pictures in docs/pictures, {sizes // 1024} KiB\n")
    return 0


def take(stage: Stage, theme: str) -> None:
    """All pages in one theme."""
    job = stage.read("/jobs?q=task:llm.summarise&limit=1")["jobs"][0]["id"]
    flow = stage.read("/flows?limit=1")["flows"][0]["id"]
    pages = {path.partition("/")[0] or "overview": path for path in PAGES}
    pages |= {"job": f"jobs/{job}", "flow": f"flows/{flow}"}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        size = {"width": WIDTH, "height": HEIGHT}
        page = browser.new_page(viewport=size, color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        for name, path in pages.items():
            page.goto(f"{stage.url}/{path}")
            page.wait_for_selector("main:not(:has([aria-busy=true]))")
            page.wait_for_load_state("load")
            page.screenshot(path=TARGET / f"{name}-{theme}.jpg", type="jpeg", quality=QUALITY)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
