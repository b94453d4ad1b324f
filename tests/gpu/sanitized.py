"""The kernels under compute-sanitizer: no access outside what was allocated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMES = 6


def run() -> dict[str, Any]:
    """What memcheck says of a few geometries of each family."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"skipped": "compute-sanitizer is not installed"}
    script = Path(__file__).parents[1] / "kernels" / "geometries.py"
    found: dict[str, Any] = {}
    for family in ("bytes", "checks"):
        done = subprocess.run(
            [tool, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, str(script),
             family, "cuda", str(TIMES)],
            # Of its own allocations torch makes few large ones: a step outside would not show.
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(done.stdout[-6000:], done.stderr[-3000:], flush=True)
        said = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line]
        found[family] = {"exit": done.returncode, "said": said}
    return found
