"""`hkvtool ingest` and `hkvtool run -o NAME.hkv`, as a person uses them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.ring_format import HEADER_BYTES
from hkvtool.recorder.recording import Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished recording of fifty events."""
    made = Recording.start(tmp_path / "t.hkv", ring_bytes=1 << 16)
    assert isinstance(made, Recording)
    with made:
        made.emit("pool", pool="gpu", medium="gpu", blocks=64)
        for n in range(49):
            made.emit("alloc", pool="gpu", blocks=[n])
    return tmp_path / "t.hkv"


def test_recording_becomes_a_trace_beside_it(hkvtool: Any, folder: Path) -> None:
    outcome = hkvtool("ingest", str(folder))
    assert outcome.code == 0 and outcome.out == ""
    assert outcome.err.splitlines() == [f"{folder.with_suffix('.duckdb')}: 50 events"]
    assert json.loads(hkvtool("info", str(folder), "--format", "json").out)["events"] == 50
    again = hkvtool("ingest", str(folder))
    assert again.code == 2 and "exists already" in again.err and "--force" in again.err
    assert hkvtool("ingest", str(folder), "--force").code == 0


def test_damage_is_said_and_stands_in_the_trace(hkvtool: Any, folder: Path, tmp_path: Path) -> None:
    ring = next(folder.glob("*-0000-*.ring"))
    data = bytearray(ring.read_bytes())
    data[HEADER_BYTES + 200] ^= 0xFF
    ring.write_bytes(data)
    trace = tmp_path / "u.duckdb"
    outcome = hkvtool("ingest", str(folder), "-o", str(trace))
    assert outcome.code == 0
    assert "1 of 50 events were dropped" in outcome.err and "damaged in 1 places" in outcome.err
    lines = hkvtool("events", str(trace), "--kind", "dropped").out
    assert "count=1" in lines and "damaged" in lines


def test_what_is_no_recording_is_refused(hkvtool: Any, tmp_path: Path) -> None:
    outcome = hkvtool("ingest", str(tmp_path))
    assert outcome.code == 3 and "is no recording" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_run_records_into_a_folder(hkvtool: Any, tmp_path: Path) -> None:
    args = ("run", "--requests", "3", "--preset", "plain", "--format", "json", "-o")
    folder, lines = tmp_path / "r.hkv", tmp_path / "r.jsonl"
    said = [json.loads(hkvtool(*args, str(place)).out)["events"] for place in (folder, lines)]
    assert hkvtool("ingest", str(folder)).code == 0
    assert hkvtool("export", str(tmp_path / "r.duckdb"), "-o", str(tmp_path / "b.jsonl")).code == 0

    def events(path: Path) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [{k: v for k, v in event.items() if k != "pointers"} for event in found]

    back = events(tmp_path / "b.jsonl")
    assert back == events(lines) and [len(back)] * 2 == said
    assert hkvtool(*args, str(folder)).code == 2
    assert hkvtool(*args, str(folder), "--force").code == 0


def test_killed_run_is_still_a_recording(process: Any, hkvtool: Any, tmp_path: Path) -> None:
    folder = tmp_path / "k.hkv"
    running = process("run", "--preset", "plain", "-o", str(folder))
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not events_so_far(hkvtool, folder):
            assert running.poll() is None, running.stderr.read()
        running.send_signal(signal.SIGKILL)
    finally:
        running.kill()
        running.communicate()
    outcome = hkvtool("ingest", str(folder))
    assert outcome.code == 0, outcome.err
    assert "the program died while it recorded" in outcome.err
    assert "dropped" not in outcome.err and "damaged" not in outcome.err


@pytest.mark.parametrize("name", ["k.duckdb", "k.jsonl"])
def test_terminated_run_leaves_nothing(process: Any, tmp_path: Path, name: str) -> None:
    running = process("run", "--preset", "plain", "-o", name)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not any(tmp_path.iterdir()):
            assert running.poll() is None, running.stderr.read()
        running.send_signal(signal.SIGTERM)
        err = running.communicate(timeout=60)[1]
    finally:
        running.kill()
        running.communicate()
    assert (running.returncode, err) == (143, b"terminated\n")
    assert list(tmp_path.iterdir()) == []


def events_so_far(hkvtool: Any, folder: Path) -> int:
    outcome = hkvtool("info", str(folder), "--format", "json")
    return json.loads(outcome.out)["events"] if outcome.code == 0 else 0
