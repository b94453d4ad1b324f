"""Run the tests of the light rooms on the other interpreters of this machine.

These rooms need no torch: model, state and recorder run inside engines of several Python
versions, the store beside them. An interpreter that is not here is skipped, and said.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOMS = ("model", "state", "store", "recorder")
VERSIONS = {"3.10": ROOMS, "3.12": ("model", "recorder"), "3.13": ROOMS}
"""The ends of the range whole, between them what reads Python's own frames and bytes."""
NEEDS = (
    "duckdb", "hypothesis", "jsonschema", "numba", "numpy", "pyarrow", "pytest", "pytest-xdist",
    "typer",
)  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent


def interpreter(version: str) -> str | None:
    """A Python of that version that really starts, from PATH or from pyenv's folder."""
    names = [shutil.which(f"python{version}")]
    names += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for name in names:
        if name and starts(name):
            return name
    return None


def starts(python: str) -> bool:
    """Whether it runs: a pyenv shim can be on PATH for a version that is not switched on."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


def environment(version: str, python: str) -> Path:
    """A virtual environment with what the light rooms' tests need, made once."""
    folder = ROOT / f".venv-{version}"
    ready = folder / "ready"
    wanted = " ".join(NEEDS)
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip(folder, *NEEDS)
        ready.write_text(wanted)
    return folder


def pip(folder: Path, *args: str) -> None:
    quiet = ("--disable-pip-version-check", "-qq", "install")
    subprocess.run([folder / "bin/python", "-m", "pip", *quiet, *args], check=True)


def main(wheel: str, workers: str) -> int:
    failed = False
    for version, these in VERSIONS.items():
        python = interpreter(version)
        if python is None:
            print(f"python {version}: skipped, no such interpreter here", flush=True)
            continue
        folder = environment(version, python)
        pip(folder, "--no-deps", "--force-reinstall", wheel)
        rooms = [f"../tests/{room}" for room in these]
        print(f"python {version}: {' '.join(rooms)}", flush=True)
        options = (
            "-q",
            "-n",
            workers,
            "-c",
            "../pyproject.toml",
            "--rootdir=..",
            "-p",
            "no:cacheprovider",
        )
        out = ROOT / "out"
        run = subprocess.run([folder / "bin/python", "-m", "pytest", *options, *rooms], cwd=out)
        failed |= run.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve()), sys.argv[2]))
