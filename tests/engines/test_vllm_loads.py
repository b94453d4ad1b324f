"""Connectors that hkvtool knows nothing of: what the engine knows of their loads is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an engine with one of the connectors told."""
    told: dict[str, Any] = {}

    def of(kind: str) -> Any:
        if kind not in told:
            folder = tmp_path_factory.mktemp(kind)
            out = folder / "told.json"
            path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
            done = subprocess.run(
                [sys.executable, "-m", "engines.loading_engine", str(folder), kind, str(out)],
                env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
                timeout=600, cwd=folder,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-3000:]
            told[kind] = json.loads(out.read_text())
        return told[kind]

    return of


def errors(report: dict[str, Any]) -> list[Any]:
    return [f for f in report["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize("kind", ["within", "meanwhile"])
def test_loads_begin_and_end_and_nothing_is_taken_for_a_fault(
    recorded: Any, findings: Any, kind: str
) -> None:
    told = recorded(kind)
    assert told["differences"] == [] and told["failed"] == {}
    seen = Counter(e["ev"] for e in told["events"])
    assert seen["load_begin"] == seen["load_end"] >= 2
    loaded = {
        e["req"] for e in told["events"] if e["ev"] == "resume" and "load" in str(e.get("route"))
    }
    assert len(loaded) >= 2 and loaded == {
        e["req"] for e in told["events"] if e["ev"] == "load_begin"
    }
    failed = [e for e in told["events"] if e["ev"] == "load_end" and e.get("ok") is False]
    assert bool(failed) == (kind == "meanwhile") and all(e["failed"] for e in failed)
    assert errors(findings(told["events"])) == []
    notes = " ".join(e.get("note", "") for e in told["events"] if e["ev"] == "evidence")
    assert "not seen: what" in notes and "stores and sends" in notes


@pytest.mark.parametrize("kind", ["within", "meanwhile"])
def test_a_load_that_never_came_is_found(recorded: Any, findings: Any, kind: str) -> None:
    events = recorded(kind)["events"]
    first = next(e["handle"] for e in events if e["ev"] == "load_begin")
    without = [e for e in events if e.get("handle") != first]
    assert {f["code"] for f in errors(findings(without))} & {"HKV103", "HKV101", "HKV305"}
