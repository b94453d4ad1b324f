"""Offloading, both ends of every transfer and what orders it, in either runner's order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engines.engine_state import differences
from engines.vllm_offload import FIRST_RUNNER, SECOND_RUNNER, OffloadDrive, own_prompts

CASES: dict[str, dict[str, Any]] = {
    "one token each": {"blocks": 14, "prompt_only": True, "length": 64, "output": 1},
    "last block fills at the end": {"blocks": 14, "prompt_only": False, "length": 60, "output": 5},
    "preempted": {"blocks": 20, "prompt_only": True, "length": 32, "output": 100},
}


def run(folder: Path, recorded: Any, order: str, overlapped: bool, case: str) -> OffloadDrive:
    folded, hooks = recorded
    options = dict(CASES[case])
    length, output = options.pop("length"), options.pop("output")
    drive = OffloadDrive(folder, hooks, order, overlapped=overlapped, **options)
    for i, prompt in enumerate(own_prompts(12, length)):
        drive.add(f"r{i}", prompt, output)
    for step in range(4000):
        if not drive.busy:
            break
        drive.step()
        found = list(differences(folded, hooks, drive.scheduler))
        assert not found, (step, found[:5])
    assert not drive.busy and not hooks.failed
    return drive


def faults(report: dict[str, Any]) -> list[Any]:
    return [f for f in report["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_flush_before_clearing(
    tmp_path: Path, recorded: Any, findings: Any, case: str, overlapped: bool
) -> None:
    drive = run(tmp_path, recorded, FIRST_RUNNER, overlapped, case)
    assert drive.right > 10 and drive.wrong == []
    seen = Counter(e["ev"] for e in recorded[0].events)
    assert seen["store_begin"] == seen["store_end"] > 10
    assert faults(findings(recorded[0].events)) == []


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_flush_after_clearing_is_found_where_it_stores_zeros(
    tmp_path: Path, recorded: Any, findings: Any, case: str, overlapped: bool
) -> None:
    """The order of the second runner stores blocks that were given away and cleared. The trace
    says so for just the stores whose bytes show it."""
    drive = run(tmp_path, recorded, SECOND_RUNNER, overlapped, case)
    found = faults(findings(recorded[0].events))
    assert bool(found) == bool(drive.wrong), (drive.wrong[:3], found[:2])
