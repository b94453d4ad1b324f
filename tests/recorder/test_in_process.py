"""`with hkvtool.record(...)` within a program, and snapshots of what goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hkvtool
from hkvtool.model.errors import HkvError
from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of
from hkvtool.model.ring_format import Policy
from hkvtool.recorder import in_process, snapshot
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.recorder.session import Session
from hkvtool.recorder.settings import Settings
from hkvtool.store import open_trace
from hkvtool.store.segments import segment_rows


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session of the test's own."""
    made = Session()
    monkeypatch.setattr(in_process, "current", lambda: made)
    yield made
    made.end()


def test_trace_is_made_at_the_end(session: Session, tmp_path: Path) -> None:
    told: list[str] = []
    session.follow(lambda r: told.append("start"), lambda r: told.append("stop"))
    with hkvtool.record(tmp_path / "t.duckdb") as recording:
        assert told == ["start"] and session.recording is recording
        free = recording.emitter("free", ("blocks",))
        assert all(free([n]) for n in range(100))
    assert told == ["start", "stop"] and session.recording is None
    assert [f.name for f in tmp_path.iterdir()] == ["t.duckdb"]
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert trace.kinds["free"] == 100


def test_guarded_recording_ends_as_well(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HKV_GUARD", "log")
    with hkvtool.record(tmp_path / "t.hkv") as recording:
        assert recording.emit("free", pool="gpu", blocks=[1])
    assert session.recording is None and stage_of(tmp_path / "t.hkv") is Stage.COMPLETE


def test_nothing_is_dropped_however_much_there_is(session: Session, tmp_path: Path) -> None:
    with hkvtool.record(tmp_path / "t.hkv") as recording:
        recording._ring_bytes = 1 << 14
        threads = [threading.Thread(target=emits, args=(recording, n)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    count = RecordingCount(stage_of(tmp_path / "t.hkv"))
    assert sum(e.ev == "free" for e in read_recording(tmp_path / "t.hkv", count)) == 6000
    assert count.stage is Stage.COMPLETE and count.rings.dropped == 0


def emits(recording: Recording, pool: int) -> None:
    free = recording.emitter("free", ("pool", "blocks"))
    for n in range(2000):
        free(f"p{pool}", [n])


def test_program_that_fails_leaves_a_recording_that_was_cut(
    session: Session, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError), hkvtool.record(tmp_path / "t.hkv") as recording:
        recording.emit("free", blocks=[1])
        raise RuntimeError
    assert stage_of(tmp_path / "t.hkv") is Stage.DIED and session.recording is None


def test_what_is_there_is_not_replaced_unasked(session: Session, tmp_path: Path) -> None:
    (tmp_path / "t.duckdb").write_text("mine")
    for output, said in (
        (tmp_path / "t.duckdb", "exists already"),
        (tmp_path / "t.txt", "no trace is called so"),
        (tmp_path / "no" / "t.hkv", "cannot record to"),
    ):
        with pytest.raises(HkvError, match=said):
            hkvtool.record(output)
    with pytest.raises(HkvError, match="no policy"):
        hkvtool.record(tmp_path / "u.hkv", policy="stall")
    with pytest.raises(HkvError, match="No such file"):
        hkvtool.record(tmp_path / "u.hkv", hash_key=tmp_path / "none")
    with hkvtool.record(tmp_path / "u.hkv"), pytest.raises(HkvError, match="records to"):
        hkvtool.record(tmp_path / "v.hkv")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["t.duckdb", "u.hkv"]


def test_where_no_trace_can_be_made_the_recording_is_kept(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    real = subprocess.run

    def without(args: list[str], **options: Any) -> Any:
        code = "import sys; sys.modules['duckdb'] = None; from hkvtool.cli.app import main; sys.exit(main(sys.argv[1:]))"
        return real([sys.executable, "-c", code, *args[3:]], **options)

    monkeypatch.setattr(subprocess, "run", without)
    with hkvtool.record(tmp_path / "t.duckdb") as recording:
        recording.emit("free", blocks=[1])
    err = capfd.readouterr().err
    assert "t.hkv is kept" in err and "Traceback" not in err
    assert [f.name for f in tmp_path.iterdir()] == ["t.hkv"]


def test_where_nothing_was_recorded_nothing_is_left(
    session: Session, tmp_path: Path, capfd: Any
) -> None:
    with hkvtool.record(tmp_path / "t.duckdb"):
        pass
    err = capfd.readouterr().err
    assert "nothing was recorded" in err and "hkvtool.recorder.diagnosis" in err
    assert "ingest" not in err and list(tmp_path.iterdir()) == []
    # One that is to stay as it was sealed is there, and says the same.
    with hkvtool.record(tmp_path / "t.hkv"):
        pass
    assert "nothing was recorded" in capfd.readouterr().err
    assert stage_of(tmp_path / "t.hkv") is Stage.COMPLETE


def test_one_small_event_is_not_nothing(session: Session, tmp_path: Path, capfd: Any) -> None:
    with hkvtool.record(tmp_path / "t.hkv") as recording:
        recording.emit("reset")
    assert "nothing" not in capfd.readouterr().err


def flight(folder: Path, triggers: tuple[str, ...] = ()) -> Recording:
    settings = Settings(Policy.OVERWRITE, ring_bytes=1 << 14, triggers=triggers)
    made = Recording.begin(folder, settings)
    assert isinstance(made, Recording)
    made.emit("trace", format="hkv/1", engine="e")
    return made


def numbers(folder: str | Path) -> list[int]:
    count = RecordingCount(stage_of(folder))
    found = [e["step"] for e in read_recording(folder, count, segment_rows) if e.ev == "free"]
    assert count.rings.torn == 0 and count.rings.dropped == 0
    return found


def test_snapshot_is_what_was_there_then(tmp_path: Path) -> None:
    recording = flight(tmp_path / "t.hkv")
    free = recording.emitter("free", ("step", "blocks"))
    for n in range(1000):
        free(n, [n])
    taken = recording.snapshot("guard HKV303")
    assert taken is not None and taken.endswith("snapshot-01-guard-HKV303.hkv")
    assert recording.snapshot("guard HKV303") is None, "once for each reason"
    for n in range(1000, 5000):
        free(n, [n])
    then, now = numbers(taken), numbers(tmp_path / "t.hkv")
    assert then[-1] == 999 and then == list(range(then[0], 1000)) and len(then) > 100
    assert now[-1] == 4999 and stage_of(taken) is Stage.COMPLETE
    with open_trace(taken) as trace:
        assert trace.meta["engine"] == "e", "what was declared at the beginning is there"
    recording.close()


def test_only_some_rules_are_a_reason(tmp_path: Path) -> None:
    recording = flight(tmp_path / "t.hkv", ("HKV702",))
    assert recording.snapshot("guard HKV303") is None
    assert recording.snapshot("guard HKV702") is not None
    recording.close()


def test_snapshots_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST", 3)
    recording = flight(tmp_path / "t.hkv")
    assert [recording.snapshot(str(n)) is not None for n in range(5)] == [True] * 3 + [False] * 2
    recording.close()
    assert recording.snapshot("later") is None


def test_snapshot_while_it_is_sealed_has_every_event_once(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    recording = Recording.start(folder, ring_bytes=1 << 19)
    assert isinstance(recording, Recording)
    free = recording.emitter("free", ("step", "blocks"))
    sealer, over = Sealer(str(folder), filled=0.01), threading.Event()

    def seals() -> None:
        while not over.is_set():
            sealer.poll()

    thread = threading.Thread(target=seals)
    thread.start()
    try:
        for n in range(8):
            for k in range(400):
                assert free(400 * n + k, [k])
            assert numbers(snapshot.snapshot(str(folder), f"n{n}")) == list(range(400 * n + 400))
    finally:
        over.set()
        thread.join()
        sealer.close()
        recording.close()


def test_what_is_sealed_while_a_snapshot_looks_around_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t.hkv"
    recording = Recording.start(folder, ring_bytes=1 << 19)
    assert isinstance(recording, Recording)
    free = recording.emitter("free", ("step", "blocks"))
    sealer = Sealer(str(folder), filled=0.0)
    listed, told, busy = os.listdir, list[int](), list[bool]()

    def tell(count: int) -> None:
        for _ in range(count):
            assert free(len(told), [len(told)])
            told.append(len(told))

    def listdir(path: Any) -> list[str]:
        """Behind each look there is one segment more than it has seen."""
        names = listed(path)
        if str(path) == str(folder) and not busy:
            busy.append(True)
            tell(3)
            sealer.poll()
            busy.clear()
        return names

    tell(400)
    monkeypatch.setattr(os, "listdir", listdir)
    for n in range(3):
        before = len(told)
        found = numbers(snapshot.snapshot(str(folder), f"n{n}"))
        assert found == told[: len(found)] and before <= len(found) < len(told)
    monkeypatch.undo()
    sealer.close()
    recording.close()
