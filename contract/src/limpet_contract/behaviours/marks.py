"""The mark that every behaviour carries, so the suite runs under any mode of pytest-asyncio."""

from __future__ import annotations

import pytest

asynchronous = pytest.mark.asyncio
