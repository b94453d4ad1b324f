"""vLLM recorded by its public connector interface: what is seen, and what is said not to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.store.derive_reads import derive_reads

HERE = Path(__file__).parent


def run(folder: Path, recorded: str) -> dict[str, Any]:
    out = folder / f"{recorded}.json"
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "engines.connector_engine", str(folder), str(out), recorded],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600,
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(out.read_text())
    return told


def test_steps_and_lookups_are_seen_and_the_rest_is_not_claimed(tmp_path: Path) -> None:
    told = run(tmp_path, "yes")
    assert told["outputs"] == run(tmp_path, "no")["outputs"]
    assert not told["defers"]
    events = [Event.of(pos, data) for pos, data in enumerate(told["events"], 1)]
    assert not [e for e in events if e.problem]
    head = events[0]
    assert head["evidence"] == ["step", "layout"] and "references" in head["note"]
    kinds = {e.ev for e in events}
    assert {"pool", "group", "lookup", "resume", "admit", "dispatch", "finish"} <= kinds
    assert not kinds & {"alloc", "free", "touch", "publish", "unpublish", "retire"}
    derived = list(derive_reads(events))
    assert {"use", "write"} <= {e.ev for e in derived}
    report = check(derived)
    assert not report.findings
    assert {"HKV704", "HKV303", "HKV102", "HKV103"} <= set(report.not_evaluable)
    cached = [hit for _, hit in told["outputs"]]
    assert report.ratios.matched == sum(cached) > 0
