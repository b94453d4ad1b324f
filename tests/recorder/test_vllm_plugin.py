"""What vLLM loads of us in every process: next to nothing, until somebody asks for a recording."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = """
import sys, time, typing, contextlib
before = set(sys.modules)
cpu = time.process_time()
from hkvtool.recorder.vllm.plugin import register
register()
register()
cpu = time.process_time() - cpu
print(cpu)
print(*(m for m in set(sys.modules) - before if m.startswith("hkvtool")))
"""


def loaded(folder: Path, before: str = "", **variables: str) -> tuple[float, set[str]]:
    """CPU seconds and our modules that registering took, with these variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")}
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", before + WATCHED], env={**environment, "PYTHONPATH": path, **variables},
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    cpu, names = done.stdout.splitlines()
    return float(cpu), set(names.split())


def test_without_being_asked_it_only_looks_at_the_environment(tmp_path: Path) -> None:
    cpu, names = loaded(tmp_path, HKV_RECORD="", HKV_ATTACH="")
    assert names == {
        "hkvtool", "hkvtool.recorder", "hkvtool.recorder.environment", "hkvtool.recorder.vllm",
        "hkvtool.recorder.vllm.plugin",
    }  # fmt: skip
    assert min(cpu, *(loaded(tmp_path)[0] for _ in range(4))) < 0.005


@pytest.mark.parametrize(
    "variables", [{"HKV_RECORD": "t.hkv"}, {"HKV_ATTACH": "1"}, {"HKV_GUARD": "log"}], ids=str
)
def test_each_way_of_asking_is_heard(tmp_path: Path, variables: dict[str, str]) -> None:
    assert "hkvtool.recorder.session" in loaded(tmp_path, **variables)[1]


def test_a_program_that_has_begun_by_itself_is_followed(tmp_path: Path) -> None:
    # `hkvtool.record` before the engine is imported: the engine's own plugin comes later.
    begun = """
from hkvtool.recorder.session import current
from hkvtool.recorder.vllm import plugin
plugin.start = lambda recording: print("never")
assert not current()._followers
"""
    check = "\nassert len(current()._followers) == 1\n"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")}
    subprocess.run(
        [sys.executable, "-c", begun + "plugin.register()\n" * 2 + check], cwd=tmp_path, check=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
