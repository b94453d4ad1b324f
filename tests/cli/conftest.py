"""Running the command line as a person does, and as a function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hkvtool.cli.app import main


@dataclass(frozen=True)
class Outcome:
    """What a command line left behind."""

    code: int
    out: str
    err: str


Hkvtool = Callable[..., Outcome]


@pytest.fixture
def hkvtool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hkvtool:
    """Run a command line in this process, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("HKV_DEBUG", raising=False)

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = main(args)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command line as a process of its own."""

    def start(*args: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "hkvtool", *args],
            cwd=tmp_path,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start
