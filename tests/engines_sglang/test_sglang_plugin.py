"""SGLang finds hkvtool by itself, and a process that nobody records pays nothing for it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from hkvtool.recorder.diagnosis import diagnosis
from hkvtool.recorder.sglang.attach import attach_report
from hkvtool.recorder.sglang.choke_points import POINTS

TESTS = Path(__file__).parents[1]

ALONE = """
import sys
from hkvtool.recorder.sglang.plugin import register
register()
print([m for m in sys.modules if m.startswith(("hkvtool.recorder.session", "sglang", "torch"))])
"""

RECORDED = """
import sys
sys.path.insert(0, {tests!r})
from engines_sglang.absent import stand_in
stand_in()
from hkvtool.recorder.sglang.plugin import register
register()
from engines_sglang.sglang_cache import Engine
engine = Engine("rust")
engine.prefill(list(range(40)))
engine.match(list(range(40)))
"""


def run(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **environment}, capture_output=True,
        text=True, check=True, timeout=900,
    )  # fmt: skip


def test_nothing_is_imported_where_nobody_asks() -> None:
    assert run(ALONE, HKV_RECORD="").stdout.strip() == "[]"


def test_a_recording_that_the_environment_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    done = run(RECORDED.format(tests=str(TESTS)), HKV_RECORD=str(folder))
    assert "not recording" not in done.stderr, done.stderr
    assert "failed and is off" not in done.stderr, done.stderr
    assert list(folder.glob("**/*.ring"))


def test_the_engine_loads_it_by_itself(tmp_path: Path) -> None:
    if not metadata.entry_points(group="sglang.srt.plugins"):
        pytest.skip("hkvtool is not installed here")
    text = RECORDED.format(tests=str(TESTS)).replace(
        "from hkvtool.recorder.sglang.plugin import register\nregister()",
        "from sglang.srt.plugins import load_plugins\nload_plugins()",
    )
    assert "load_plugins()" in text
    folder = tmp_path / "t.hkv"
    done = run(text, HKV_RECORD=str(folder), SGLANG_PLUGINS="hkvtool")
    assert "failed and is off" not in done.stderr, done.stderr
    assert list(folder.glob("**/*.ring"))


def test_every_choke_point_is_there() -> None:
    report = attach_report()
    assert not report.missing and report.tried, report
    assert set(report.evidence) == {"host", "step"}


def test_doctor_says_what_would_attach() -> None:
    told = {fact.name: fact.value for fact in diagnosis()}
    there = len(POINTS)
    assert told["attaches to sglang"] == f"{there} of {there} functions"


def test_it_is_among_the_plugins() -> None:
    group = metadata.entry_points(group="sglang.srt.plugins")
    ours = [point for point in group if point.name == "hkvtool"]
    if not ours:
        pytest.skip("hkvtool is not installed here")
    assert ours[0].value == "hkvtool.recorder.sglang.plugin:register"
