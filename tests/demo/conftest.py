"""One demo from beginning to end for the tests that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.stage import SMALL, Running


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Running]]:
    """A demo that is started now; it runs beside the test that kills another one."""
    folder = tmp_path_factory.mktemp("whole")
    with Running(folder, "--scale", SMALL) as running:
        yield folder, running
