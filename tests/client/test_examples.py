"""The examples in the docstrings of the public API run as they stand."""

from __future__ import annotations

import doctest

import pytest

import holdfast.app
import holdfast.client.handle
import holdfast.client.task


@pytest.mark.parametrize("module", [holdfast.app, holdfast.client.handle, holdfast.client.task])
def test_docstrings_run(module: object) -> None:
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)  # type: ignore[arg-type]  # a module
    assert result.attempted > 0
    assert result.failed == 0
