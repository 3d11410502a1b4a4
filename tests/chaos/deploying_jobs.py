"""Two versions of an app: today's takes one more argument of one task, and calls another task by a new name."""

from __future__ import annotations

import os

from limpet import Limpet, current_job
from tests.chaos.chaos_jobs import leave_trace

_URL = os.environ.get("CHAOS_URL", "sqlite://")

before = Limpet(_URL, code_version="before")
today = Limpet(_URL, code_version="today")


@before.task(name="order.ship")
async def ship(order: int) -> None:
    leave_trace("before")


@before.task(name="mail.send")
async def send(to: str) -> None:
    leave_trace(current_job().task)


@today.task(name="order.ship")
async def ship_abroad(order: int, country: str) -> None:
    leave_trace("today")


@today.task(name="mail.deliver", aliases=["mail.send"])
async def deliver(to: str) -> None:
    leave_trace(current_job().task)
