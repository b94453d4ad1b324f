"""A recording read as a trace: live, finished, died or damaged; and made into one file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.jsonl import read_jsonl
from hkvtool.recorder.recording import Recording, sink
from hkvtool.store import ingesting, open_trace
from hkvtool.store.ingesting import ingest


@pytest.fixture
def recording(tmp_path: Path) -> Any:
    """A recording of a few events that goes on."""
    made = Recording.start(tmp_path / "t.hkv", ring_bytes=1 << 16)
    assert isinstance(made, Recording)
    made.emit("trace", format="hkv/1", engine="e", evidence=["host"])
    made.emit("pool", pool="gpu", medium="gpu", blocks=64)
    made.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=16)
    made.emit("alloc", group="kv", req="r1", blocks=[1, 2, 3])
    yield made
    made.close()


def test_live_recording_opens_as_it_is_now(recording: Recording) -> None:
    with open_trace(recording.folder) as trace:
        recording.emit("free", group="kv", req="r1", blocks=[3, 2, 1])
        assert trace.count == 4 and trace.meta["engine"] == "e"
        assert "still being recorded" in trace.remarks[0]
        assert [e.ev for e in trace.events()] == ["trace", "pool", "group", "alloc"]
    with open_trace(recording.folder) as trace:
        assert [e.ev for e in trace.events(req="r1")] == ["alloc", "free"]


def test_ingested_trace_has_the_events_of_the_recording(
    recording: Recording, tmp_path: Path
) -> None:
    with open_trace(recording.folder) as trace:
        live = [dict(e.data) for e in trace.events()]
    told: list[tuple[int, int]] = []
    summary, count = ingest(
        recording.folder, tmp_path / "t.duckdb", progress=lambda *at: told.append(at)
    )
    assert summary.events == 4 and "still being recorded" in count.problems()[0]
    recording.close()
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert [dict(e.data) for e in trace.events()] == live
        assert trace.meta["sources"][0]["file"] == "t.hkv"
    assert ingest(recording.folder, tmp_path / "t.duckdb", force=True)[1].problems() == []


def test_long_recording_is_read_once(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_trace(recording.folder) as short:
        wanted, facts = [dict(e.data) for e in short.events()], short.meta
    monkeypatch.setattr(ingesting, "_LONG", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with open_trace(recording.folder) as trace:
        assert isinstance(trace, ingesting.IngestedRecording) and trace.path == recording.folder
        assert [dict(e.data) for e in trace.events()] == wanted
        assert trace.meta == facts and "still being recorded" in trace.remarks[0]
    assert [f.name for f in tmp_path.iterdir()] == ["t.hkv"]
    recording.close()
    for ring in Path(recording.folder).glob("*.ring"):
        ring.write_bytes(ring.read_bytes()[:4096])
    with pytest.raises(TraceError):
        open_trace(recording.folder).close()
    assert [f.name for f in tmp_path.iterdir()] == ["t.hkv"]


@pytest.mark.parametrize("kind", [".ring", "manifest.jsonl"])
def test_a_pipe_in_a_recording_is_not_waited_for(
    recording: Recording, tmp_path: Path, kind: str
) -> None:
    recording.close()
    folder = Path(recording.folder)
    for place in {*folder.glob(f"*{kind}"), folder / f"x{kind}"} if kind == ".ring" else [kind]:
        (folder / place).unlink(missing_ok=True)
        os.mkfifo(folder / place)
    with pytest.raises(TraceError, match="it is no regular file"):
        ingest(folder, tmp_path / "t.duckdb")
    assert not (tmp_path / "t.duckdb").exists()


def test_existing_trace_is_kept_and_failures_leave_nothing(
    recording: Recording, tmp_path: Path
) -> None:
    (tmp_path / "t.duckdb").write_text("mine")
    with pytest.raises(HkvError, match="exists already"):
        ingest(recording.folder, tmp_path / "t.duckdb")
    assert (tmp_path / "t.duckdb").read_text() == "mine"
    with pytest.raises(TraceError, match="there is no file or folder"):
        ingest(tmp_path / "none.hkv", tmp_path / "u.duckdb")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.duckdb", "t.hkv"]


def test_recording_without_an_event_makes_no_trace(tmp_path: Path) -> None:
    with sink(tmp_path / "t.hkv"):
        pass
    with pytest.raises(TraceError, match="there is no event in it"):
        ingest(tmp_path / "t.hkv", tmp_path / "t.duckdb")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.hkv"]


def test_every_case_survives_recording(case: Any, tmp_path: Path) -> None:
    with case.bad.open("rb") as stream:
        wanted = [dict(e.data) for e in read_jsonl(stream)]
    with sink(tmp_path / "t.hkv") as emit:
        for data in wanted:
            assert emit(data)
    with open_trace(tmp_path / "t.hkv") as trace:
        assert [dict(e.data) for e in trace.events()] == wanted
