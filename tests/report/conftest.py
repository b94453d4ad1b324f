"""Outputs held against files beside the tests; `HKV_GOLDENS=write` writes them anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Assert that a text is the golden of that name."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / name
        if os.environ.get("HKV_GOLDENS") == "write":
            path.write_text(text)
        assert text == path.read_text()

    return compare
