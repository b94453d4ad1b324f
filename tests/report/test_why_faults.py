"""Who got wrong bytes, by the stamps of the reference engine, is who `hkvtool why` blames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers.verdict import Verdict, why
from hkvtool.model.errors import Exit
from hkvtool.model.jsonl import read_jsonl

PRESETS = ("deepseek-v4", "gpt-oss", "qwen3-next", "plain")
WRONG = (Verdict.RESUMED_WRONGLY, Verdict.READ_WRONGLY)
CODES = (101, 102, 103, 105, 301, 304, 305, 601, 603, 604, 701, 707, 709, 802)
"""Faults whose wrong bytes a read of the engine itself meets."""

QUICK = (102, 707)


def blamed(hkvtool: Any, folder: Path, code: str) -> None:
    for preset in PRESETS:
        path = folder / f"{preset}.jsonl"
        run = hkvtool("run", "--preset", preset, "--requests", "10", "--fault", code,
                      "-o", str(path), "--format", "json")  # fmt: skip
        if run.code == Exit.OK:
            break
    assert run.code == Exit.OK, run.err
    victim = json.loads(run.out)["first_wrong_read"]["request"]
    with path.open("rb") as stream:
        events = list(read_jsonl(stream))
    found = why(events, victim)
    assert found.verdict in WRONG and found.finding is not None, found.sentence
    assert code in (found.finding.code, found.root and found.root.code)


@pytest.mark.parametrize("code", QUICK)
def test_the_first_victim_is_blamed(hkvtool: Any, tmp_path: Path, code: int) -> None:
    blamed(hkvtool, tmp_path, f"HKV{code}")


@pytest.mark.soak
@pytest.mark.parametrize("code", [c for c in CODES if c not in QUICK])
def test_the_first_victim_of_every_fault_is_blamed(hkvtool: Any, tmp_path: Path, code: int) -> None:
    blamed(hkvtool, tmp_path, f"HKV{code}")
