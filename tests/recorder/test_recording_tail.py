"""Reading the end of a recording again and again: every event once, whoever is faster."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hkvtool.model.recording import read_recording
from hkvtool.model.recording_tail import RecordingTail
from hkvtool.model.ring_format import Policy
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.store.segments import segment_rows


def start(folder: Path, **options: Any) -> Recording:
    made = Recording.start(folder, **options)
    assert isinstance(made, Recording), made
    return made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for what another thread may still tell."""
    monkeypatch.setattr("hkvtool.model.recording_tail.BEHIND_NS", 0)


def all_of(tail: RecordingTail, most: int = 1 << 20) -> list[Any]:
    found = tail.more(most)
    while tail.waiting:
        found += tail.more(most)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_with_a_sealer_that_is_faster_or_slower(tmp_path: Path, seed: int) -> None:
    """At any pace of the three, the tail tells what a reader of the whole tells at the end."""
    rng = Random(seed)
    folder = tmp_path / "r.hkv"
    recording = start(folder, ring_bytes=1 << 14)
    sealer, tail = Sealer(os.fspath(folder)), RecordingTail(folder, segment_rows)
    found = []
    number = 0
    for _ in range(120):
        doing = rng.random()
        if doing < 0.5:
            for _ in range(rng.randrange(1, 300)):
                recording.emit("write", step=number, group="kv", blocks=[number % 7])
                number += 1
        elif doing < 0.75:
            sealer.poll(last=rng.random() < 0.3)
        else:
            found += tail.more(rng.choice([10, 1000, 100_000]))
    recording.close()
    if rng.random() < 0.5:
        sealer.poll(last=True)
    found += all_of(tail)
    sealer.close()
    whole = list(read_recording(folder, rows_of=segment_rows))
    told = [(e["step"], e.pos) for e in found if e.ev == "write"]
    assert told == [(e["step"], e.pos) for e in whole if e.ev == "write"]
    assert len(told) > 1000
    lost = sum(e["count"] for e in found if e.ev == "dropped")
    assert lost == tail.count.rings.dropped == number - len(told)
    assert tail.count.rings.stored == len([e for e in found if e.ev != "dropped"])


@pytest.mark.usefixtures("at_once")
def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "r.hkv"
    recording = start(folder, ring_bytes=1 << 16)
    tail = RecordingTail(folder, segment_rows)
    for n in range(500):
        recording.emit("write", step=n, group="kv", blocks=[1])
    assert len(all_of(tail)) >= 500
    sizes = []
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: sizes.append(n) or read(fd, n, at))
    recording.emit("write", step=500, group="kv", blocks=[1])
    assert [e["step"] for e in tail.more(100)] == [500]
    recording.close()
    assert sum(sizes) < 3 * 4096 + 200, "a page or two of the header, and the one record"


@pytest.mark.usefixtures("at_once")
def test_a_flight_recorder_is_read_on_and_says_what_went_by(tmp_path: Path) -> None:
    folder = tmp_path / "r.hkv"
    recording = start(folder, ring_bytes=1 << 14, policy=Policy.OVERWRITE)
    tail = RecordingTail(folder, segment_rows)
    steps = []
    for n in range(100):
        recording.emit("write", step=n, group="kv", blocks=[1])
        if n % 10 == 0:
            steps += [e["step"] for e in tail.more(1000) if e.ev == "write"]
    steps += [e["step"] for e in tail.more(1000) if e.ev == "write"]
    assert steps == list(range(100)) and not tail.count.rings.vanished
    for n in range(100, 3000):
        recording.emit("write", step=n, group="kv", blocks=[1])
    found = [e["step"] for e in tail.more(5000) if e.ev == "write"]
    assert found == list(range(found[0], 3000)) and found[0] > 100
    assert tail.count.rings.vanished == found[0] - 100
    assert not tail.count.rings.dropped and not tail.count.rings.torn
    recording.close()


def test_threads_in_order_of_time_while_they_write(tmp_path: Path) -> None:
    folder = tmp_path / "r.hkv"
    recording = start(folder)
    tail = RecordingTail(folder, segment_rows)
    stop = threading.Event()

    def work(name: str) -> None:
        n = 0
        while not stop.wait(0.0005) and n < 2000:
            recording.emit("write", actor=name, step=n, group="kv", blocks=[n % 5])
            n += 1

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    found = []
    for _ in range(30):
        found += tail.more(1000)
        stop.wait(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    recording.close()
    found += all_of(tail)
    times = [e["ts"] for e in found]
    assert times == sorted(times) and len({e.actor for e in found if e.ev == "write"}) == 3
    whole = list(read_recording(folder, rows_of=segment_rows))
    assert [dict(e.data) for e in found] == [dict(e.data) for e in whole]


@pytest.mark.usefixtures("at_once")
def test_a_damaged_ring_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "r.hkv"
    recording = start(folder)
    recording.emit("write", step=1, group="kv", blocks=[1])
    (folder / "zz.ring").write_bytes(b"no ring" * 1000)
    tail = RecordingTail(folder, segment_rows)
    assert [e["step"] for e in tail.more(10) if e.ev == "write"] == [1]
    assert "zz.ring" in tail.count.unreadable
    recording.close()
