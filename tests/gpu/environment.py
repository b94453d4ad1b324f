"""What the other steps ran on."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from typing import Any

import torch

PACKAGES = ("torch", "triton", "numpy", "numba", "duckdb", "pyarrow", "hkvtool")


def run() -> dict[str, Any]:
    """The machine, its driver, and the versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    shown = "no nvidia-smi"
    if shutil.which("nvidia-smi"):
        shown = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False).stdout
    print(shown)
    chip = torch.cuda.get_device_properties(0)
    return {
        "device": chip.name, "processors": chip.multi_processor_count,
        "memory": chip.total_memory, "capability": f"{chip.major}.{chip.minor}",
        "cuda": torch.version.cuda, "python": platform.python_version(), "versions": versions,
        "compute-sanitizer": shutil.which("compute-sanitizer") is not None,
    }  # fmt: skip
