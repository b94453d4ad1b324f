"""The production workload under every preset: three witnesses, none of which has anything to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.engine.presets import PRESETS


def _json(hkvtool: Any, *args: str) -> dict[str, Any]:
    outcome = hkvtool(*args, "--format", "json")
    assert outcome.code == 0, outcome.err
    loaded: dict[str, Any] = json.loads(outcome.out)
    return loaded


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_two_thousand_requests(hkvtool: Any, tmp_path: Path, name: str) -> None:
    trace = str(tmp_path / "t.duckdb")
    said = _json(hkvtool, "run", "--preset", name, "--requests", "2000", "-o", trace)
    assert said["wrong_reads"] == 0 < said["reads"]
    assert min(said["evicted_blocks"], said["stored_blocks"], said["loaded_blocks"]) > 0
    report = _json(hkvtool, "check", trace)
    assert {finding["code"] for finding in report["findings"]} <= {"HKV308"}
    assert report["ratios"]["matched"] == said["matched_tokens"]
    assert report["ratios"]["resumable"] == said["resumed_tokens"]
