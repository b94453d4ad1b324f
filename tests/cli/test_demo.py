"""`hkvtool demo` shows what it says it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_demo_ends_with_three_witnesses_of_one_fault(hkvtool: Any, tmp_path: Path) -> None:
    found = hkvtool("demo", "--out", str(tmp_path / "demo"))
    assert found.code == 0
    assert len(re.findall("With the fix: no errors", found.out)) == 3
    figures = {
        line[:30].strip(): [int(n.replace(",", "")) for n in line[30:].split()]
        for line in found.out.splitlines()
        if re.match(r"  [a-z].{28}\s+[\d,]+\s+[\d,]+$", line)
    }
    careful, trusting = figures["reads of wrong bytes"]
    assert careful == 0 < trusting
    careful, trusting = figures["errors that the check finds"]
    assert careful == 0 < trusting
    matched, resumed = figures["of which matched by hash"], figures["of which resumed from"]
    assert matched[0] == matched[1] == resumed[1] > resumed[0]
    assert (tmp_path / "demo" / "workload.duckdb").exists()
