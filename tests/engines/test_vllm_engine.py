"""Whole engines, recorded: the folded state and the views are theirs, outputs are unchanged.

Each engine runs in a process of its own: they leave threads and patches behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engines.vllm_engine import MODELS

HERE = Path(__file__).parent


def run(folder: Path, model: str, *how: str) -> dict[str, Any]:
    """What `recorded_engine.py` says of one run."""
    out = folder / f"{model}-{'-'.join(how)}.json"
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "engines.recorded_engine", str(folder), model, str(out), *how],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(out.read_text())
    return told


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What a recorded engine with one of the models came to."""
    return cache(lambda model: run(tmp_path_factory.mktemp(model), model))


@pytest.mark.parametrize("model", MODELS)
def test_engine(recorded: Any, findings: Any, model: str) -> None:
    told = recorded(model)
    assert told["differences"] == []
    assert told["steps"] > 30
    assert told["failed"] == {}
    assert told["lost"] == {}
    assert told["views"] == [] and told["layers"] >= 4
    report = findings(told["events"])
    assert [f for f in report["findings"] if f["severity"] == "error"] == []
    kinds = {event["ev"] for event in told["events"]}
    assert {
        "alloc",
        "free",
        "publish",
        "unpublish",
        "lookup",
        "resume",
        "dispatch",
        "buffer",
    } <= kinds
    # The engine counts what a request hit at first, not what it hits again after a preemption.
    resumed: dict[str, int] = {}
    for event in told["events"]:
        if event["ev"] == "lookup":
            resumed.setdefault(event["req"], 0)
        elif event["ev"] == "resume" and event["req"] in resumed and not resumed[event["req"]]:
            if not any(e["ev"] == "preempt" and e["req"] == event["req"] for e in told["events"]):
                resumed[event["req"]] = event["at"]
    assert sum(n for _, n in told["outputs"]) == sum(resumed.values()) > 0


@pytest.mark.parametrize("model", ["gemma3", pytest.param("qwen3next", marks=pytest.mark.soak)])
def test_recording_changes_no_output(tmp_path: Path, recorded: Any, model: str) -> None:
    assert run(tmp_path, model, "bare")["outputs"] == recorded(model)["outputs"]
