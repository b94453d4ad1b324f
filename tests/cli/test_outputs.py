"""What a command is given to write to: refused before the work, never the trace, never half."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hkvtool.store.destination import Destination, _locked

WRITERS = [
    (["minimize"], "x.jsonl"),
    (["bundle"], "x.zip"),
    (["export", "--format", "pytest"], "x.py"),
    (["export", "--format", "perfetto"], "x.json"),
    (["export", "--format", "parquet"], "x.parquet"),
    (["export"], "x.jsonl"),
    (["report"], "x.html"),
]


@pytest.mark.parametrize(("command", "name"), WRITERS)
def test_a_trace_is_never_its_own_output(
    hkvtool: Any, cases: Any, tmp_path: Path, command: list[str], name: str
) -> None:
    trace = tmp_path / name
    shutil.copy(cases["A01"].folder / "bad.jsonl", trace)
    before = trace.read_bytes()
    first, *options = command
    outcome = hkvtool(first, str(trace), *options, "-o", str(trace), "--force")
    assert outcome.code == 2
    assert "overwritten by its own" in outcome.err
    assert trace.read_bytes() == before


@pytest.mark.parametrize(("command", "name"), WRITERS)
def test_what_exists_is_refused_before_the_work(
    hkvtool: Any, cases: Any, tmp_path: Path, monkeypatch: Any, command: list[str], name: str
) -> None:
    there = tmp_path / name
    there.write_text("precious")

    def worked(*_: object, **__: object) -> None:
        raise AssertionError("the check was begun")

    monkeypatch.setattr("hkvtool.analyzers.check", worked)
    first, *options = command
    trace = str(cases["A01"].folder / "bad.jsonl")
    outcome = hkvtool(first, trace, *options, "-o", str(there))
    assert outcome.code == 2
    assert "exists already" in outcome.err
    assert there.read_text() == "precious"


@pytest.mark.parametrize("command", ["report", "import"])
def test_a_dash_is_no_file_name(
    hkvtool: Any, cases: Any, tmp_path: Path, monkeypatch: Any, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = hkvtool(command, str(cases["A01"].folder / "bad.jsonl"), "-o", "-")
    assert outcome.code == 2
    assert "not to stdout" in outcome.err
    assert os.listdir(tmp_path) == []


def test_a_picture_is_no_way_to_lose_a_trace(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    shutil.copy(cases["A01"].folder / "bad.jsonl", trace)
    outcome = hkvtool("tui", str(trace), "--screenshot", str(trace))
    assert outcome.code == 2
    assert trace.read_text().startswith("{")


def test_a_budget_too_small_to_begin_with_is_told(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    trace = str(cases["A01"].folder / "bad.jsonl")
    for command in (["minimize"], ["bundle", "-o", str(tmp_path / "x.zip")]):
        outcome = hkvtool(*command, trace, "--budget", "1")
        assert outcome.code == 2
        assert "within the budget of 1" in outcome.err
        assert "--budget" in outcome.err
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_nothing_for_good(tmp_path: Path) -> None:
    target = tmp_path / "t.jsonl"
    pid = os.fork()
    if pid == 0:
        with Destination(target) as place:
            place.path.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    other = tmp_path / ".t.jsonl.notours"
    other.mkdir()
    with Destination(target) as place:
        place.path.write_text("whole")
    assert left.exists(), "what was written just now may be another process's"
    old = time.time() - 3600
    for path in (*left.iterdir(), left, other):
        os.utime(path, (old, old))
    in_use = _locked(left)
    assert in_use is not None
    with Destination(target, force=True) as place:
        place.path.write_text("whole")
    assert left.exists(), "it is locked"
    os.close(in_use)
    with Destination(target, force=True) as place:
        place.path.write_text("whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".t.jsonl.notours", "t.jsonl"]


@pytest.mark.parametrize("command", ["ingest", "snapshot"])
@pytest.mark.parametrize("folder", [".", "..", "/"])
def test_a_folder_without_a_name_is_told(
    hkvtool: Any, tmp_path: Path, monkeypatch: Any, command: str, folder: str
) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    outcome = hkvtool(command, folder)
    assert outcome.code == 3
    assert "is no recording" in outcome.err


def test_a_request_and_a_rule_that_nobody_knows_are_told(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["A01"].folder / "bad.jsonl")
    for options in (["--depth", "cache"], ["--step"]):
        outcome = hkvtool("replay", trace, *options, "--request", "nope")
        assert outcome.code == 2
        assert "no event names a request 'nope'" in outcome.err
    outcome = hkvtool("record", "--trigger", "HKV999", "--", "true")
    assert outcome.code == 2
    assert "there is no rule 'HKV999'" in outcome.err
