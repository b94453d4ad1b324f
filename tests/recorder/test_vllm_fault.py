"""A fault of a real engine, kept as a trace: stores flushed after their blocks were cleared."""

from __future__ import annotations

from pathlib import Path

from hkvtool.analyzers.check import check
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped

# (request, block): what the copy engine of the run found to be zeros under a valid key.
WRONG = {("r0", 3), ("r0", 4), ("r0", 5), ("r1", 11), ("r1", 12), ("r1", 13)}


def test_just_the_stores_of_cleared_blocks_are_found() -> None:
    path = Path(str(shipped("engines"))) / "vllm-0.32.0-flush-after-clear.jsonl"
    with path.open("rb") as stream:
        report = check(read_jsonl(stream)).as_json()
    errors = [f for f in report["findings"] if f["severity"] == "error"]
    found = {(f["request"], block) for f in errors for block in f["blocks"]}
    assert found >= WRONG and {r for r, _ in found} == {"r0", "r1", "r2"}
    assert len(found) == 9
