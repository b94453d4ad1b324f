"""A picture of a trace that cannot be read, or holds numbers that no clock gives."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hkvtool.cli.app import main
from hkvtool.store.importing import import_traces


def test_a_damaged_trace_ends_with_words_and_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, trace = tmp_path / "t.jsonl", tmp_path / "t.duckdb"
    pool = '{"ev":"pool","pool":"gpu","medium":"gpu","blocks":64}\n'
    lines = (f'{{"ev":"alloc","pool":"gpu","blocks":[{i % 64}],"req":"r{i}"}}' for i in range(9000))
    source.write_text(pool + "\n".join(lines) + "\n")
    import_traces([str(source)], trace)
    whole = bytearray(trace.read_bytes())
    # Its head and its catalogue at the end stay: the damage shows only when events are read.
    half = len(whole) // 2
    whole[half : half + 200_000] = b"\xff" * len(whole[half : half + 200_000])
    trace.write_bytes(whole)
    code = main(["tui", str(trace), "--screenshot", str(tmp_path / "x.svg")])
    assert code == 3
    assert "cannot be read" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["t.duckdb", "t.jsonl"]


def test_a_time_that_no_clock_gives_is_passed_over(tmp_path: Path) -> None:
    trace, picture = tmp_path / "t.jsonl", tmp_path / "x.svg"
    pool = {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 4}
    late = {"ev": "alloc", "pool": "gpu", "blocks": [1], "req": "r", "ts": 2**63}
    trace.write_text("\n".join(map(json.dumps, (pool, late))) + "\n")
    assert main(["tui", str(trace), "--screenshot", str(picture)]) == 0
    assert picture.read_text().lstrip().startswith("<svg")


def test_a_name_that_is_not_in_utf8(tmp_path: Path) -> None:
    trace, picture = tmp_path / "t\udcff.jsonl", tmp_path / "x.svg"
    trace.write_text(json.dumps({"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 4}) + "\n")
    assert main(["tui", str(trace), "--screenshot", str(picture)]) == 0
    assert "udcff" in picture.read_text()
