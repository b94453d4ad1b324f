"""The Triton kernels equal their references bit for bit, run by Triton's interpreter.

In a process of its own: whether kernels are interpreted is settled when they are defined.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'hkvtool[gpu]'"
)

FAMILIES = ("bytes", "checks", "codes")


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_equal_their_references(family: str, tmp_path: Path) -> None:
    script = Path(__file__).parent / "geometries.py"
    done = subprocess.run(
        [sys.executable, str(script), family],
        cwd=tmp_path, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout
