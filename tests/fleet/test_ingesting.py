"""What goes into a fleet is there, or it is said that it is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from conftest import Case

from hkvtool.cli.app import main
from hkvtool.fleet.instances import instances


def test_two_that_go_to_one_place_are_not_two_instances(
    tmp_path: Path, cases: dict[str, Case], capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [tmp_path / name / "run.jsonl" for name in ("a", "b")]
    for source in sources:
        source.parent.mkdir()
        shutil.copy(cases["A01"].bad, source)
        os.utime(source, (10**9, 10**9))
    out = tmp_path / "fleet"
    args = [*map(str, sources), "-o", str(out), "--force", "--workers", "1"]
    assert main(["fleet", "ingest", *args]) == 3
    err = capsys.readouterr().err
    assert f"the same place as {sources[0]}" in err
    assert ": 1 instance, " in err and len(instances(out)) == 1
