"""The sealer: every event in exactly one place, whatever fails and whenever."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.manifest import MANIFEST, Segment, read_manifest
from hkvtool.model.recording import RecordingCount, read_recording, stage_of
from hkvtool.model.ring_format import Policy
from hkvtool.recorder import sealer as sealer_module
from hkvtool.recorder.launcher import SealerProcess
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.recorder.sealing import Bounds, Sealing, Status
from hkvtool.store import open_trace
from hkvtool.store.segments import segment_rows


class Told:
    """A recording of numbered events, and what comes back of it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        made = Recording.start(folder, **options)
        assert isinstance(made, Recording), made
        self.folder, self.recording = folder, made
        self.write = made.emitter("write", ("step", "group", "blocks"))
        self.stored: list[int] = []
        self.emitted = 0

    def emit(self, times: int) -> None:
        for _ in range(times):
            n = self.emitted
            self.emitted += 1
            how = self.write(n, "kv", [n % 9]) if n % 3 else self.recording.emit("write", step=n)
            self.stored += [n] * how

    def read(self) -> tuple[list[int], RecordingCount]:
        count = RecordingCount(stage_of(self.folder))
        events = list(read_recording(self.folder, count, segment_rows))
        return [e["step"] for e in events if e.ev == "write"], count

    def check(self) -> RecordingCount:
        """Each stored event once, each other counted."""
        steps, count = self.read()
        assert steps == self.stored
        assert count.rings.stored == len(self.stored)
        assert count.rings.emitted == self.emitted and count.rings.torn == 0
        return count


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path / "t.hkv", ring_bytes=1 << 14)
    yield made
    made.recording.close()


def segments(folder: Path) -> list[Segment]:
    return read_manifest(os.fspath(folder))


def test_events_move_from_ring_to_segments(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    for _ in range(40):
        told.emit(100)
        sealer.poll()
        told.check()
    assert len(segments(told.folder)) > 3 and told.check().rings.dropped == 0
    assert sealer.seen.stored == 4000
    told.recording.close()
    sealer.poll(last=True)
    assert not list(told.folder.glob("*.ring")), "a ring that is sealed and ended goes away"
    told.check()
    sealer.close()


def test_files_are_the_owners_only(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    told.emit(100)
    sealer.poll(last=True)
    for file in told.folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    sealer.close()


def test_without_a_sealer_in_time_events_are_dropped_and_the_gap_is_sealed(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    told.emit(1000)
    sealer.poll()
    told.emit(1000)
    sealer.poll()
    told.recording.close()
    sealer.poll(last=True)
    sealer.close()
    count = told.check()
    assert 0 < count.rings.dropped == 2000 - len(told.stored)
    with open_trace(told.folder) as trace:
        gaps = [e["count"] for e in trace.events(kinds={"dropped"})]
    assert sum(gaps) == count.rings.dropped


def test_a_line_says_what_a_segment_holds(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    told.emit(10)
    sealer.poll(last=True)
    (segment,) = segments(told.folder)
    (ring,) = [r for r in segment.rings if r.rows]
    assert (ring.first_seq, ring.next_seq, ring.rows, ring.stored) == (0, 10, 10, 10)
    assert ring.pid == os.getpid() and ring.started > 0 < ring.wall and ring.host > 0
    assert segment.bytes == (told.folder / segment.file).stat().st_size
    assert Segment.of_line(segment.line()) == segment
    sealer.close()


class Died(BaseException):
    """A sealer that was killed at a certain moment."""


def dying(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
    whole: Callable[..., Any] = getattr(sealer_module, name)

    def dies(*args: Any) -> Any:
        if after:
            whole(*args)
        raise Died

    monkeypatch.setattr(sealer_module, name, dies)


MOMENTS = [("write_segment", False), ("write_segment", True), ("append_line", True)]


@pytest.mark.parametrize(("name", "after"), MOMENTS)
def test_sealer_that_died_anywhere_is_followed_by_another(
    told: Told, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    folder = os.fspath(told.folder)
    first = Sealer(folder)
    told.emit(100)
    first.poll(last=True)
    told.emit(100)
    with monkeypatch.context() as patch, pytest.raises(Died):
        dying(patch, name, after=after)
        first.poll(last=True)
    told.check()
    first.close()
    told.emit(50)
    second = Sealer(folder)
    told.check()
    second.poll()
    told.emit(50)
    second.poll(last=True)
    told.recording.close()
    second.poll(last=True)
    second.close()
    assert told.check().rings.dropped == 0
    files = {segment.file for segment in segments(told.folder)}
    assert {f.name for f in told.folder.glob("*.parquet*")} == files


def test_line_that_was_cut_is_written_anew(told: Told) -> None:
    folder = os.fspath(told.folder)
    first = Sealer(folder)
    told.emit(100)
    first.poll(last=True)
    first.close()
    manifest = told.folder / MANIFEST
    with manifest.open("ab") as file:
        file.write(b'{"v":1,"file":"seg-0000')
    told.check()
    second = Sealer(folder)
    told.emit(100)
    second.poll(last=True)
    second.close()
    told.check()
    assert len([json.loads(line) for line in manifest.read_text().splitlines()]) == 2


def test_two_sealers_on_one_folder(told: Told) -> None:
    first = Sealer(os.fspath(told.folder))
    with pytest.raises(HkvError, match="has a sealer already"):
        Sealer(os.fspath(told.folder))
    told.emit(10)
    first.poll(last=True)
    first.close()
    Sealer(os.fspath(told.folder)).close()
    told.check()


def test_disk_that_is_full_loses_nothing_until_the_rings_are(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealer = Sealer(os.fspath(told.folder))
    told.emit(10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: full())
        sealer.poll(last=True)
        assert "No space left" in sealer.trouble
    assert sorted(f.suffix for f in told.folder.iterdir() if "seg" in f.name) == []
    told.emit(10)
    sealer.poll(last=True)
    assert sealer.trouble == ""
    assert told.check().rings.dropped == 0 and len(segments(told.folder)) == 1
    sealer.close()


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_damaged_segment_is_named_and_the_rest_read(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    for _ in range(3):
        told.emit(50)
        sealer.poll(last=True)
    sealer.close()
    told.emit(10)
    (told.folder / segments(told.folder)[1].file).write_bytes(b"PAR1 and nothing else")
    steps, count = told.read()
    assert steps == [n for n in told.stored if not 50 <= n < 100]
    assert list(count.unreadable) == ["seg-000001.parquet"]
    assert (count.rings.stored, count.rings.dropped) == (110, 50)


def test_manifest_that_makes_no_sense_is_refused(told: Told) -> None:
    (told.folder / MANIFEST).write_text("{}\n")
    with pytest.raises(TraceError, match="line 1 makes no sense"):
        told.read()
    line = Segment("a.parquet", 0, 0, 0, ()).line()
    for wrong in (
        line.replace("a.parquet", "../a.parquet"),
        line.replace('"number":0', '"number":"0"'),
        line.replace('"bytes":0', '"bytes":-1'),
    ):
        (told.folder / MANIFEST).write_text(wrong + "\n")
        with pytest.raises(TraceError, match="line 1 makes no sense"):
            told.read()
    newer = Segment("a.parquet", 0, 0, 0, ()).line().replace('"v":1', '"v":9')
    (told.folder / MANIFEST).write_text(newer + "\n")
    with pytest.raises(TraceError, match="newer hkvtool"):
        told.read()


def test_flight_recorder_is_left_alone(tmp_path: Path) -> None:
    told = Told(tmp_path / "f.hkv", ring_bytes=1 << 14, policy=Policy.OVERWRITE)
    sealer = Sealer(os.fspath(told.folder))
    told.emit(3000)
    sealer.poll(last=True)
    sealer.close()
    told.recording.close()
    assert segments(told.folder) == [] and told.read()[0][-1] == 2999


def declared(told: Told) -> None:
    told.recording.emit("trace", format="hkv/1", engine="e")
    told.recording.emit("pool", pool="gpu", medium="gpu", blocks=9)


def sealed_often(told: Told, sealer: Sealer, times: int) -> None:
    declared(told)
    for _ in range(times):
        told.emit(100)
        sealer.poll(last=True)


def test_old_segments_go_but_for_what_they_declare(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    sealed_often(told, sealer, 6)
    before = sealer.bytes
    Sealing(sealer, Bounds(max_bytes=before // 2, keep=3600)).bound()
    assert sealer.bytes < before
    sealer.close()
    steps, count = told.read()
    assert steps and steps == told.stored[-len(steps) :] and len(steps) < 600
    assert count.rings.vanished == 600 - len(steps) and count.rings.dropped == 0
    with open_trace(told.folder) as trace:
        assert [e.ev for e in trace.events(until=2)] == ["trace", "pool"]
    Sealer(os.fspath(told.folder)).close()
    assert told.read()[0] == steps


def test_what_is_older_than_it_may_be_goes(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    sealer = Sealer(os.fspath(told.folder))
    clock = [1_000_000_000_000]
    monkeypatch.setattr(sealer_module, "time_ns", lambda: clock[0])
    monkeypatch.setattr("hkvtool.recorder.sealing.time_ns", lambda: clock[0])
    sealing = Sealing(sealer, Bounds(keep=60))
    for _ in range(4):
        told.emit(100)
        sealer.poll(last=True)
        clock[0] += 25_000_000_000
        sealing.bound()
    sealer.close()
    assert told.read()[0] == list(range(200, 400))


def test_recording_as_large_as_it_may_be_is_switched_off(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    sealed_often(told, sealer, 2)
    sealing = Sealing(sealer, Bounds(max_bytes=sealer.bytes))
    sealing.bound()
    assert not (told.folder / "off").exists()
    told.emit(100)
    sealer.poll(last=True)
    sealing.bound()
    assert "as many as it may" in (told.folder / "off").read_text()
    sealer.close()


def test_status_tells_what_the_engine_matched_and_resumed(told: Told) -> None:
    sealer = Sealer(os.fspath(told.folder))
    lookup = told.recording.emitter("lookup", ("req", "hit", "tokens"))
    lookup("r1", {"a": 64, "b": 32}, 100)
    told.recording.emit("resume", req="r1", at=32)
    lookup("r2", {"a": 0, "b": 0}, 50)
    sealer.poll()
    status = Sealing(sealer, Bounds()).status()
    assert (status.asked, status.matched, status.resumed) == (150, 64, 32)
    assert (status.events, status.waiting, status.dropped) == (3, 3, 0)
    assert Status.of_line(status.line()) == status
    sealer.close()


def test_reading_while_it_is_sealed_tells_each_event_once(tmp_path: Path) -> None:
    told = Told(tmp_path / "t.hkv", ring_bytes=1 << 16)
    over = threading.Event()
    sealer = Sealer(os.fspath(told.folder), filled=0.05)

    def seals() -> None:
        while not over.is_set():
            sealer.poll()

    thread = threading.Thread(target=seals)
    thread.start()
    try:
        for _ in range(15):
            told.emit(400)
            steps, count = told.read()
            assert steps == told.stored[: len(steps)] and len(steps) == len(told.stored)
            assert count.rings.torn == 0 and not count.unreadable
    finally:
        over.set()
        thread.join()
        sealer.close()
        told.recording.close()


def test_a_launcher_that_is_gone_has_not_said_that_it_is_over(told: Told) -> None:
    """Its end of the pipe is closed before anybody else could know that it has died."""
    process = SealerProcess(os.fspath(told.folder), Bounds())
    sealer = process._process
    assert sealer.stdin is not None and sealer.stdout is not None
    sealer.stdin.close()
    end = time.monotonic() + 60
    while process.look() is None:
        assert time.monotonic() < end and sealer.poll() is None
        time.sleep(0.02)
    told.emit(100)
    told.recording.close()
    assert sealer.wait(60) == 0
    sealer.stdout.close()
    assert not list(told.folder.glob("*.ring")), "all of it is sealed"
    assert told.read()[0] == list(range(100))
