"""Tools for tests: the contract that every engine keeps, with its model, random walk and crash points."""

from contextlib import suppress

# The suite's plain asserts explain themselves only when pytest rewrites them before their first import.
with suppress(ImportError):
    import pytest

    pytest.register_assert_rewrite("limpet_contract.behaviours", "limpet_contract.bench")
