"""A field per test; the seed is printed, and CHAOS_SEED repeats a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.field import Field


@pytest.fixture
async def field(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Field]:
    seed = int(os.environ.get("CHAOS_SEED", secrets.randbelow(1 << 30)))
    request.node.add_report_section("setup", "seed", f"CHAOS_SEED={seed}")
    field = Field(tmp_path, seed)
    yield field
    await field.close()
