"""`hkvtool diff`: where two traces part, and what that changed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hkvtool.model.errors import Exit


def test_a_fault_against_its_fix(hkvtool: Any, cases: Any, golden: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(cases["A01"].folder)
    found = hkvtool("diff", "good.jsonl", "bad.jsonl")
    assert found.code == Exit.FINDINGS and max(map(len, found.out.splitlines())) <= 80
    golden("diff-A01.txt", found.out)


def test_every_case_parts_from_its_fix_and_not_from_itself(hkvtool: Any, case: Any) -> None:
    good, bad = str(case.good), str(case.bad)
    found = hkvtool("diff", good, bad, "--format", "json")
    said = json.loads(found.out)
    assert found.code == Exit.FINDINGS and not said["same"]
    only = {f["code"] for f in said["findings_only"]["B"]}
    assert set(case.meta["expect"]["must"]) & only or case.meta["expect"]["must"] == ["HKV308"]
    lines = hkvtool("diff", good, bad).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert hkvtool("diff", bad, bad).code == Exit.OK


def test_many_lanes_that_part_take_one_pass(hkvtool: Any, tmp_path: Path) -> None:
    for name, size in (("a", 4), ("b", 5)):
        lines = (
            json.dumps({"ev": "zero", "pool": "gpu", "blocks": [size], "actor": f"stream:{i}"})
            for i in range(3000)
        )
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    begun = time.process_time()
    found = hkvtool("diff", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
    assert time.process_time() - begun < 15, "a pass a lane takes minutes"
    assert found.code == Exit.FINDINGS
    assert "and 2992 more lanes part" in found.out
    assert found.out.count("parts after 0 events alike") == 8


def test_standard_input_can_be_one_of_them_only(hkvtool: Any) -> None:
    found = hkvtool("diff", "-", "-")
    assert found.code == Exit.USAGE and "named twice" in found.err
