"""A recording: rings of many threads and processes, one order, and how it stands."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of
from hkvtool.model.ring_format import HEADER_BYTES, Policy
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording, sink


def start(folder: Path, **options: Any) -> Recording:
    made = Recording.start(folder, **options)
    assert isinstance(made, Recording), made
    return made


def read(folder: Path) -> tuple[list[Event], RecordingCount]:
    count = RecordingCount(stage_of(folder))
    return list(read_recording(folder, count)), count


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_events_are_stamped_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder) as recording:
        assert stage_of(folder) is Stage.RECORDING
        recording.emit("alloc", req="r1", group="kv", blocks=[4, 5])
        recording.emit("write", group="kv", blocks=[4], tokens=[0, 16], step=1)
        recording.emit_dict({"ev": "free", "blocks": [4], "pool": "gpu"})
    events, count = read(folder)
    assert [e.pos for e in events] == [1, 2, 3] and not any(e.problem for e in events)
    assert [(e.actor, e["seq"]) for e in events] == [("sched", 0), ("device", 0), ("sched", 1)]
    times = [e["ts"] for e in events]
    assert times == sorted(times) and times[0] > 0
    assert count.stage is Stage.COMPLETE and count.problems() == []
    assert count.read_bytes == count.total_bytes > 0


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    with start(tmp_path / "t.hkv") as recording:
        recording.emit("reset")
    assert stat.S_IMODE(os.stat(tmp_path / "t.hkv").st_mode) == 0o700
    for file in (tmp_path / "t.hkv").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_threads_are_merged_in_an_order_that_can_have_been(tmp_path: Path) -> None:
    turn = [threading.Semaphore(1), threading.Semaphore(0)]
    with start(tmp_path / "t.hkv", ring_bytes=1 << 20) as recording:

        def ping(me: int) -> None:
            for n in range(50):
                turn[me].acquire()
                recording.emit("wait", event=f"e{2 * n + me}", actor=f"t{me}")
                recording.emit("signal", event=f"e{2 * n + me + 1}", actor=f"t{me}")
                turn[1 - me].release()

        threads = [threading.Thread(target=ping, args=(me,)) for me in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list((tmp_path / "t.hkv").glob("*.ring"))) == 3
    events, _ = read(tmp_path / "t.hkv")
    signalled = {"e0"}
    for e in events:
        if e.ev == "wait":
            assert e["event"] in signalled
        signalled.add(e["event"])
    for lane in ("t0", "t1"):
        assert [e["seq"] for e in events if e.actor == lane] == list(range(100))


def test_ring_of_an_ended_thread_is_used_again(tmp_path: Path) -> None:
    with start(tmp_path / "t.hkv", ring_bytes=1 << 16, max_bytes=1 << 17) as recording:
        for n in range(20):
            in_thread(lambda n=n: recording.emit("signal", event=n))
    events, count = read(tmp_path / "t.hkv")
    assert [e["event"] for e in events] == list(range(20))
    assert count.rings.dropped == 0


def test_thread_that_gets_no_ring_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder, ring_bytes=1 << 16, max_bytes=1 << 16) as recording:
        recording.emit("signal", event=1)
        in_thread(lambda: [recording.emit("signal", event=2, actor="w") for _ in range(3)])
        assert [type(off) for off in recording.off] == [Off]
    events, count = read(folder)
    assert count.rings.stored == 1 and count.rings.dropped == 3
    assert sum(e["count"] for e in events if e.ev == "dropped") == 3
    assert any("3 of 4 events were dropped" in said for said in count.problems())


def test_losses_jump_the_number_of_the_lane(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder) as recording:
        recording.emit("signal", event=1, actor="w")
        recording.emit("signal", event=object(), actor="w")
        recording.emit("signal", event=2, actor="w")
    events, _ = read(folder)
    assert [(e.ev, e.actor, e.get("seq")) for e in events] == [
        ("signal", "w", 0), ("dropped", "w", None), ("signal", "w", 2)
    ]  # fmt: skip


def test_flight_recorder_keeps_what_was_declared(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder, policy=Policy.OVERWRITE, ring_bytes=1 << 14) as recording:
        recording.emit("trace", format="hkv/1")
        recording.emit("pool", pool="gpu", medium="gpu", blocks=100)
        for n in range(5000):
            recording.emit("signal", event=n)
    events, count = read(folder)
    assert [e.ev for e in events[:3]] == ["trace", "pool", "signal"]
    assert events[-1]["event"] == 4999 and events[2]["event"] > 4000
    assert count.rings.vanished == events[2]["event"] and count.rings.dropped == 0
    assert any("overwritten" in said for said in count.problems())


def test_sink_grows_and_leaves_time_to_the_caller(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with Recording.start(folder, policy=Policy.GROW, stamp=False, ring_bytes=1 << 14) as recording:  # type: ignore[union-attr]
        for n in range(3000):
            assert recording.emit_dict({"ev": "signal", "event": n, "ts": 3 * n})
    assert len(list(folder.glob("*.ring"))) > 4
    events, count = read(folder)
    assert [dict(e.data) for e in events] == [
        {"ev": "signal", "event": n, "ts": 3 * n} for n in range(3000)
    ]
    assert count.problems() == [] and count.rings.stored == 3000


def test_sink_that_cannot_grow_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate, left = os.posix_fallocate, [3]

    def few(fd: int, offset: int, size: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", few)
    folder = tmp_path / "t.hkv"
    stored = 0
    with pytest.raises(HkvError, match="No space left"), sink(folder) as emit:
        emit({"ev": "group", "group": "kv", "layers": ["x" * 1000] * 1000})
        for n in range(40):
            stored += emit({"ev": "group", "group": n, "layers": ["x" * 1000] * 1000})
    _, count = read(folder)
    assert count.stage is Stage.DIED
    assert count.rings.stored == stored + 1 < 41
    assert count.rings.emitted == 41


def test_sink_that_is_interrupted_is_not_complete(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), sink(tmp_path / "t.hkv") as emit:
        emit({"ev": "reset", "ts": 1})
        raise KeyboardInterrupt
    events, count = read(tmp_path / "t.hkv")
    assert len(events) == 1 and count.stage is Stage.DIED
    assert any("died while it recorded" in said for said in count.problems())


def test_two_recorders_on_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder) as recording:
        recording.emit("reset")
        second = Recording.start(folder, force=True)
        assert isinstance(second, Off)
        assert f"being recorded by another program (PID {os.getpid()})" in second.what
        recording.emit("reset")
    again = Recording.start(folder)
    assert isinstance(again, Off) and "exists already" in again.what
    assert "ingest" not in again.hint
    (folder / "complete").rename(folder / "incomplete")
    killed = Recording.start(folder)
    assert isinstance(killed, Off) and f"`hkvtool ingest {folder}` makes a trace" in killed.hint
    (folder / "incomplete").rename(folder / "complete")
    assert len(read(folder)[0]) == 2
    with start(folder, force=True) as recording:
        recording.emit("reset", pool="gpu")
    assert [e["pool"] for e in read(folder)[0]] == ["gpu"]


def test_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    off = Recording.start(tmp_path, force=True)
    assert isinstance(off, Off) and "no recording" in off.what
    assert (tmp_path / "mine").read_text() == "x"


@pytest.mark.parametrize("place", ["/proc/t.hkv", "/no/such/t.hkv", "/dev/null/t.hkv"])
def test_place_that_takes_no_recording(place: str) -> None:
    off = Recording.start(place)
    assert isinstance(off, Off) and off.what.startswith(f"cannot record to {place}")


def test_nothing_is_left_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    off = Recording.start(tmp_path / "t.hkv")
    assert isinstance(off, Off) and off.hint
    assert list(tmp_path.iterdir()) == []


def test_forked_child_goes_on_in_rings_of_its_own(tmp_path: Path) -> None:
    code = """
import os, sys
from hkvtool.recorder.recording import Recording
recording = Recording.start(sys.argv[1], ring_bytes=1 << 16)
recording.emit("signal", event="before")
pid = os.fork()
for n in range(50):
    recording.emit("signal", event=n, actor="parent" if pid else "child")
if not pid:
    recording.close()
    os._exit(0)
os.waitpid(pid, 0)
recording.close()
"""
    folder = tmp_path / "t.hkv"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    events, count = read(folder)
    assert count.stage is Stage.COMPLETE and count.rings.stored == 101
    for lane in ("parent", "child"):
        assert [e["event"] for e in events if e.actor == lane] == list(range(50))


def test_unreadable_ring_is_named_and_the_others_read(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder, ring_bytes=1 << 16) as recording:
        recording.emit("signal", event=1)
        in_thread(lambda: recording.emit("signal", event=2))
    first, *_ = sorted(folder.glob("*-0000-*.ring"))
    first.write_bytes(first.read_bytes()[: HEADER_BYTES // 2])
    events, count = read(folder)
    assert [e["event"] for e in events] == [2]
    assert list(count.unreadable) == [first.name]
    for ring in folder.glob("*.ring"):
        ring.write_bytes(b"")
    with pytest.raises(TraceError, match="cannot be read"):
        read(folder)


def test_folder_that_is_no_recording(tmp_path: Path) -> None:
    empty, file = tmp_path / "empty.hkv", tmp_path / "file.hkv"
    empty.mkdir()
    file.touch()
    for path, what in (
        (tmp_path, "is no recording"),
        (file, "is no recording"),
        (empty, "holds no recording"),
        (tmp_path / "none.hkv", "there is no file or folder"),
    ):
        with pytest.raises(TraceError, match=what):
            read(path)


def test_fault_in_one_thread_leaves_the_others_recording(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder, ring_bytes=1 << 16) as recording:
        in_thread(lambda: recording.emit_dict(None))  # type: ignore[arg-type]
        assert threading.current_thread() and recording.emit("signal", event=1) in (True, False)
        in_thread(lambda: recording.emit("signal", event=2))
    _, count = read(folder)
    assert len(count.failed) == 1 and count.rings.stored >= 1
    assert any("turned itself off" in said for said in count.problems())
