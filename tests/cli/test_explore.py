"""`hkvtool explore` and `hkvtool minimize`, as a person uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def test_the_command_says_what_fails_and_replays_it(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["B03"].bad)
    outcome = hkvtool("explore", trace, "--format", "json")
    assert outcome.code == 1
    said = json.loads(outcome.out)
    assert said["found"][0]["failure"]["found"] == 20
    again = hkvtool("explore", trace, "--schedule", said["found"][0]["schedule"])
    assert again.code == 1 and "gets the bytes of event 20" in again.out
    assert hkvtool("explore", str(cases["B03"].good), "--block", "gpu:9").code == 0
    assert hkvtool("explore", str(cases["B03"].good)).code == 2


def test_minimize_writes_a_trace_that_checks_the_same(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    small = tmp_path / "small.jsonl"
    outcome = hkvtool("minimize", str(cases["B03"].bad), "-o", str(small), "--format", "json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["code"] == "HKV703" and said["events"] < 10
    assert len(small.read_text().splitlines()) == said["events"]
    assert hkvtool("check", str(small), "--only", "HKV703").code == 1


def test_minimize_says_what_it_cannot(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    good, bad = str(cases["B03"].good), str(cases["B03"].bad)
    assert hkvtool("minimize", good).code == 2
    assert "there are F1" in hkvtool("minimize", bad, "--finding", "F9").err
    assert hkvtool("minimize", bad, "-o", str(tmp_path / "x.duckdb")).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_a_trace_that_every_command_reads(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    bundle = tmp_path / "b.zip"
    outcome = hkvtool("bundle", str(cases["B03"].bad), "-o", str(bundle))
    assert outcome.code == 0, outcome.err
    assert "failing schedule" in outcome.err
    assert hkvtool("check", str(bundle), "--only", "HKV703").code == 1
    schedule = outcome.err.split("failing schedule ")[1].strip()
    assert hkvtool("explore", str(bundle), "--schedule", schedule).code == 1
    assert hkvtool("info", str(bundle)).code == 0


def test_a_test_fails_while_the_bug_is_there(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    small, case = tmp_path / "small.jsonl", tmp_path / "test_race.py"
    assert hkvtool("minimize", str(cases["B03"].bad), "-o", str(small)).code == 0
    outcome = hkvtool("export", str(small), "--format", "pytest", "-o", str(case))
    assert outcome.code == 0, outcome.err
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(case)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, env=clean)
    assert first.returncode == 1 and b"1 failed" in first.stdout
    again = subprocess.run(
        command, cwd=tmp_path, capture_output=True,
        env={**clean, "HKV_TRACE": str(cases["B03"].good)},
    )  # fmt: skip
    assert again.returncode == 0, again.stdout


def test_the_command_writes_a_file_or_nothing(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    trace = str(cases["B03"].bad)
    assert hkvtool("export", trace, "--format", "perfetto", "-o", str(out)).code == 0
    assert json.loads(out.read_text())["traceEvents"]
    cut = hkvtool(
        "export", trace, "--format", "perfetto", "-o", str(out), "--force", "--most", "30"
    )  # fmt: skip
    assert "left out" in cut.err
    assert hkvtool("export", trace, "--format", "perfetto").code == 2
