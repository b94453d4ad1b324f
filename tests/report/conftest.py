"""Outputs held against files beside the tests; `HKV_GOLDENS=write` writes them anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hkvtool.cli.app import main

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


class Outcome(NamedTuple):
    """What a command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def hkvtool(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run a command line in this process, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = main(args)
        return Outcome(code, *capsys.readouterr())

    return run
