"""A small app for the commands that need one."""

from __future__ import annotations

import sys

from limpet.app import Limpet

sys.stdout.write("so may a module, when it is imported\n")
app = Limpet()


@app.task(name="email.send", queue="email", priority="critical")
async def send_email(to: str, count: int = 1) -> str:
    """Sends nothing, and says that it did."""
    sys.stdout.write("a task may print\n")
    return f"sent {count} to {to}"


@app.task(name="pdf.make", queue="pdf", retry=1)
def make_pdf(pages: int) -> None:
    """Fails for good."""
    raise ValueError(f"no paper for {pages}")
