"""A probe of a server that is recorded: what diverged is linked with what the allocator did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.jsonl import read_jsonl
from hkvtool.recorder.recording import Recording
from probe.asked import asked
from probe.stub import Stub


def test_the_rings_are_kept_and_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cases: Any
) -> None:
    """The recording holds a public bug; its trace is not that of the stub, which has none."""
    recording = Recording.start(tmp_path / "server.hkv")
    assert isinstance(recording, Recording)
    with cases["A01"].bad.open("rb") as stream:
        for event in read_jsonl(stream):
            recording.emit_dict(event.data)
    found = tmp_path / "found"
    args = ("--recording", str(recording.folder), "--save", str(found), "--pattern", "warm")
    try:
        code, report = asked(Stub(fault="missing state"), capsys, "--comparisons", "2", *args)
    finally:
        recording.close()
    finding = report["findings"][0]
    assert code == 1 and finding["confirmed"]
    assert "probe-D1" in finding["snapshot"] and Path(finding["trace"]).exists()
    assert any("HKV102 (of other requests)" in line for line in finding["trace_findings"])
    lines = Path(finding["minimal"]).read_text().splitlines()
    assert 2 < len(lines) < 40 and json.loads(lines[0])["ev"] == "trace"
    assert Path(finding["replay"]).parent == found


def test_a_recording_that_has_ended_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording.start(tmp_path / "server.hkv")
    assert isinstance(recording, Recording)
    recording.close()
    from hkvtool.cli.app import main
    from probe.stub import serving

    with serving(Stub()) as url:
        assert main(["probe", url, "--recording", str(tmp_path / "server.hkv")]) == 2
    assert "is not being recorded" in capsys.readouterr().err
