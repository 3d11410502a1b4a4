"""The examples in the docstrings of the public API run as they stand."""

from __future__ import annotations

import doctest

import pytest

import limpet.app
import limpet.app_asking
import limpet.app_declaring
import limpet.client.handle
import limpet.client.task
import limpet.runtime.log_fields


@pytest.mark.parametrize(
    "module",
    [
        limpet.app,
        limpet.app_asking,
        limpet.app_declaring,
        limpet.client.handle,
        limpet.client.task,
        limpet.runtime.log_fields,
    ],
)
def test_docstrings_run(module: object) -> None:
    result = doctest.testmod(module, extraglobs={"Limpet": limpet.Limpet}, optionflags=doctest.ELLIPSIS)  # type: ignore[arg-type]  # a module
    assert result.attempted > 0
    assert result.failed == 0
