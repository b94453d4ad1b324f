"""`pytest --hkv` on the tests of a toy allocator: one that is right, and some that are not."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ALLOCATOR = """
from hkvtool.recorder.session import follow

class Allocator:
    recording = None

    def __init__(self, blocks=4):
        self.free_blocks = list(range(1, blocks))
        self.emit("pool", pool="gpu", medium="gpu", blocks=blocks, reserved=[0])
        self.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=4)

    def emit(self, ev, **keys):
        if Allocator.recording is not None:
            Allocator.recording.emit(ev, **keys)

    def take(self, req):
        block = self.free_blocks.pop(0)
        self.emit("alloc", group="kv", blocks=[block], req=req)
        return block

    def give(self, req, block):
        self.free_blocks.append(block)
        self.emit("free", group="kv", blocks=[block], req=req)

def start(recording):
    Allocator.recording = recording

def stop(recording):
    Allocator.recording = None

follow(start, stop)
"""

TESTS = """
import pytest
from allocator import Allocator

def test_right():
    a = Allocator()
    a.give("r", a.take("r"))

def test_frees_twice():
    a = Allocator()
    block = a.take("r")
    a.give("r", block)
    a.give("r", block)
    assert False, "an engine that went on"

def test_swallows_it():
    a = Allocator()
    block = a.take("r")
    a.give("r", block)
    try:
        a.give("r", block)
    except Exception:
        pass

def test_right_again_from_nothing():
    a = Allocator()
    assert a.take("r") == 1

def test_leaves_a_block_taken():
    Allocator().take("r")

def test_takes_it_anew():
    a = Allocator()
    a.give("r", a.take("r"))

@pytest.mark.no_hkv
def test_breaks_it_on_purpose():
    a = Allocator()
    block = a.take("r")
    a.give("r", block)
    a.give("r", block)

@pytest.fixture(scope="module")
def shared():
    return Allocator()

def test_shared_engine_takes(shared):
    shared.block = shared.take("s")

def test_shared_engine_gives_twice(shared):
    shared.give("s", shared.block)
    shared.give("s", shared.block)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "allocator.py").write_text(ALLOCATOR)
    (tmp_path / "test_toy.py").write_text(TESTS)
    return tmp_path


def run(folder: Path, *args: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, as a user calls it; the plugin also where it is not
    installed."""
    bare = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    known = any(point.name == "hkv" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "hkvtool.recorder.pytest_plugin"]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HKV_", "PYTEST_"))}
    env |= {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", code or bare, *plugin, "-p", "no:cacheprovider", *args, "-q"],
        cwd=folder, capture_output=True, text=True, env=env,
    )  # fmt: skip


def outcomes(output: str) -> dict[str, str]:
    """Outcome of each test that was named in a short summary."""
    lines = [line.split(" - ")[0].split() for line in output.splitlines() if "::" in line]
    return {words[1].partition("::")[2]: words[0] for words in lines if len(words) == 2}


def test_the_engine_stops_where_the_rule_breaks(suite: Path) -> None:
    done = run(suite, "--hkv", "-rA")
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes(done.stdout) == {
        "test_right": "PASSED",
        "test_frees_twice": "FAILED",
        "test_swallows_it": "FAILED",
        "test_right_again_from_nothing": "PASSED",
        "test_leaves_a_block_taken": "PASSED",
        "test_takes_it_anew": "PASSED",
        "test_breaks_it_on_purpose": "PASSED",
        "test_shared_engine_takes": "PASSED",
        "test_shared_engine_gives_twice": "FAILED",
    }
    assert "an engine that went on" not in done.stdout.partition("short test summary")[2]
    assert "HKV704 refcount: block 1 is released more often than it was taken (by r)" in done.stdout
    report = done.stdout.partition("hkv guard")[2]
    assert "what led to it" in report and "alloc req=r group=kv blocks=[1]" in report
    assert " events judged, 3 broken rules (HKV704 3)" in done.stdout


def test_a_log_lets_the_engine_go_on_and_fails_the_test(suite: Path) -> None:
    done = run(suite, "--hkv=log", "-rA")
    assert outcomes(done.stdout)["test_swallows_it"] == "FAILED"
    assert "an engine that went on" in done.stdout


def test_nothing_happens_unless_asked(suite: Path) -> None:
    done = run(suite, "-rA")
    assert outcomes(done.stdout)["test_swallows_it"] == "PASSED"
    assert "hkv" not in done.stdout


def test_what_an_engine_in_another_process_does_is_guarded_there(suite: Path) -> None:
    (suite / "test_toy.py").write_text(
        """
import subprocess, sys

def test_process():
    code = "from allocator import *; a = Allocator(); b = a.take('r'); a.give('r', b); a.give('r', b)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
"""
    )
    done = run(suite, "--hkv")
    assert done.returncode == 1
    assert "GuardError: HKV704" in done.stdout


def test_a_suite_without_an_engine_is_told_that_nothing_was_judged(suite: Path) -> None:
    (suite / "test_toy.py").write_text("def test_nothing(): pass\n")
    done = run(suite, "--hkv")
    assert done.returncode == 0
    assert "no engine told anything: nothing was judged" in done.stdout


def test_it_takes_the_standard_library_and_pytest_alone(suite: Path) -> None:
    code = (
        "import sys\n"
        "class Bar:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'duckdb', 'numpy', 'numba', 'torch', 'pyarrow'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Bar())\n"
        "import pytest\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    done = run(suite, "--hkv", "-k", "test_right", code=code)
    assert done.returncode == 0, done.stdout + done.stderr


def test_under_xdist_each_worker_judges(suite: Path) -> None:
    pytest.importorskip("xdist")
    done = run(suite, "--hkv", "-rA", "-n", "2", "--dist", "loadfile")
    assert outcomes(done.stdout)["test_swallows_it"] == "FAILED", done.stdout + done.stderr
