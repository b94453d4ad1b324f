"""The ring: exact counts, no stall, nothing escapes, and whatever is in the file can be read."""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.ring_drain import RingDrain
from hkvtool.model.ring_format import (
    ERROR_AT,
    HEADER_BYTES,
    Policy,
    RingError,
    RingHeader,
    RingState,
    Word,
)
from hkvtool.model.ring_reader import RingCount, RingReader
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.ring import Ring


def make(folder: Path, **options: Any) -> Ring:
    made = Ring.create(folder / f"{len(list(folder.iterdir()))}.ring", **options)
    assert isinstance(made, Ring), made
    return made


def read(ring: Ring) -> tuple[list[dict[str, Any]], RingCount]:
    reader = RingReader.open(ring.path)
    return [data for _, data in reader.events()], reader.count


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [e["n"] for e in events if e["ev"] != "dropped"]


def event(n: int, size: int = 0) -> dict[str, Any]:
    return {"ev": "signal", "event": "x" * size, "n": n}


def test_events_come_back_with_their_times(tmp_path: Path) -> None:
    ring = make(tmp_path)
    before = time.monotonic_ns()
    assert all(ring.emit(event(n)) for n in range(100))
    reader = RingReader.open(ring.path)
    found = list(reader.events())
    assert [data for _, data in found] == [event(n) for n in range(100)]
    times = [ts for ts, _ in found]
    assert before <= times[0] and times == sorted(times)
    assert reader.count == RingCount(stored=100)
    assert reader.state is RingState.OPEN
    ring.close()
    assert RingReader.open(ring.path).state is RingState.CLOSED


def test_header_says_whose_it_is(tmp_path: Path) -> None:
    before = time.monotonic_ns(), time.time_ns()
    ring = make(tmp_path, name="engine core é", thread=3, part=2, first_seq=9, capacity=8192)
    header = RingReader.open(ring.path).header
    assert (header.pid, header.thread, header.part, header.name) == (
        os.getpid(),
        3,
        2,
        "engine core é",
    )
    assert (header.capacity, header.first_seq, header.policy) == (8192, 9, Policy.DROP)
    assert before[0] <= header.monotonic <= time.monotonic_ns()
    assert before[1] <= header.wall <= time.time_ns()
    assert stat.S_IMODE(os.stat(ring.path).st_mode) == 0o600
    assert os.stat(ring.path).st_blocks * 512 >= 8192


def drained(drain: RingDrain, *, last: bool = False) -> list[dict[str, Any]]:
    return [data for _, data in drain.take(last=last)]


ACTIONS = st.lists(st.one_of(st.integers(0, 1500), st.just(-1)), max_size=120)
"""Sizes of events, with a drain at -1."""


@given(ACTIONS, st.sampled_from([4096, 5000, 12_000]))
def test_emitted_is_stored_plus_dropped(
    tmp_path_factory: pytest.TempPathFactory, actions: list[int], capacity: int
) -> None:
    ring = make(tmp_path_factory.mktemp("ring"), capacity=capacity)
    drain = RingDrain(ring.path)
    events: list[dict[str, Any]] = []
    stored: list[int] = []
    emitted = 0
    for action in actions:
        if action < 0:
            events += drained(drain)
            continue
        if ring.emit(event(emitted, action)):
            stored.append(emitted)
        emitted += 1
    ring.close()
    events += drained(drain, last=True)
    assert numbers(events) == stored
    assert drain.count == RingCount(stored=len(stored), dropped=emitted - len(stored))
    assert sum(e["count"] for e in events if e["ev"] == "dropped") == emitted - len(stored)
    # A gap stands exactly where the events are missing.
    at = 0
    for e in events:
        at = at + e["count"] if e["ev"] == "dropped" else at + (e["n"] == at)
    assert at == emitted


def test_gap_names_lane_and_reason_once_there_is_room(tmp_path: Path) -> None:
    ring = make(tmp_path, capacity=4096)
    lost = {"worker:0": 0, "sched": 0}
    for n in range(100):
        for lane in lost:
            lost[lane] += not ring.emit({**event(n, 100), "actor": lane})
    drain = RingDrain(ring.path)
    drained(drain)
    assert ring.emit(event(7))
    told = [e for e in drained(drain) if e["ev"] == "dropped"]
    assert {e["actor"]: e["count"] for e in told} == lost
    assert {e["reason"] for e in told} == {"ring full"}


@given(st.lists(st.integers(0, 1500), max_size=150))
def test_flight_recorder_keeps_the_latest_whole_events(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    ring = make(tmp_path_factory.mktemp("ring"), capacity=4096, policy=Policy.OVERWRITE)
    for n, size in enumerate(sizes):
        assert ring.emit(event(n, size))
    events, count = read(ring)
    kept = numbers(events)
    assert kept == list(range(len(sizes) - len(kept), len(sizes)))
    assert count.torn == count.dropped == 0
    assert count.emitted == len(sizes)
    if sizes:
        assert kept, "the latest always fits"
        assert sum(s + 48 for s in sizes[kept[0] - 1 :]) > 2000 or kept[0] == 0


def test_ring_that_grows_says_that_it_is_full(tmp_path: Path) -> None:
    ring = make(tmp_path, capacity=4096, policy=Policy.GROW)
    n = 0
    while ring.emit(event(n, 50)):
        n += 1
    assert ring.full and ring.next_seq == n
    assert read(ring)[1] == RingCount(stored=n)


class Broken(dict[str, Any]):
    """An event that cannot even be looked at."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    get = __getitem__  # type: ignore[assignment]


def test_exception_turns_the_ring_off_and_is_recorded(tmp_path: Path) -> None:
    ring = make(tmp_path)
    assert ring.emit(event(0))
    assert not ring.emit(Broken(ev="alloc"))
    assert not any(ring.emit(event(n)) for n in range(3))
    reader = RingReader.open(ring.path)
    events = [data for _, data in reader.events()]
    assert numbers(events) == [0]
    assert reader.state is RingState.DISABLED and "RuntimeError: no" in reader.error
    assert events[-1] == {"ev": "dropped", "count": 4, "reason": reader.error}
    assert reader.count == RingCount(stored=1, dropped=4)


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", {1: 1}])
def test_event_that_is_no_json_is_dropped_and_the_next_one_stored(
    tmp_path: Path, value: Any
) -> None:
    ring = make(tmp_path)
    assert not ring.emit({"ev": "alloc", "req": value})
    assert ring.emit(event(1))
    (gap, after), count = read(ring)
    assert gap["count"] == 1 and gap["reason"].startswith("not encodable")
    assert after == event(1) and count == RingCount(stored=1, dropped=1)


def test_event_larger_than_the_ring_is_dropped(tmp_path: Path) -> None:
    ring = make(tmp_path, capacity=4096)
    assert not ring.emit(event(0, 5000))
    assert ring.emit(event(1))
    assert [e["ev"] for e in read(ring)[0]] == ["dropped", "signal"]


def test_emit_inside_an_emit_is_counted(tmp_path: Path) -> None:
    ring = make(tmp_path)

    class Emits(dict[str, Any]):
        def keys(self) -> Any:
            ring.emit(event(5))
            return super().keys()

        def items(self) -> Any:
            ring.emit(event(5))
            return super().items()

        def __iter__(self) -> Any:
            ring.emit(event(5))
            return super().__iter__()

    assert ring.emit(Emits(event(1)))
    assert ring.emit(event(2))
    events, count = read(ring)
    assert numbers(events) == [1, 2]
    assert count.stored == 2 and count.dropped >= 1
    assert {e["reason"] for e in events if e["ev"] == "dropped"} == {"emitted inside an emit"}


def test_emit_after_close_is_refused(tmp_path: Path) -> None:
    ring = make(tmp_path)
    ring.emit(event(0))
    ring.close()
    ring.close()
    assert not ring.emit(event(1))
    assert numbers(read(ring)[0]) == [0]


def test_no_room_for_the_file_is_an_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    off = Ring.create(tmp_path / "a.ring")
    assert isinstance(off, Off) and "No space left" in off.what and off.hint
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_there_and_ring_that_is(tmp_path: Path) -> None:
    off = Ring.create(tmp_path / "no" / "a.ring")
    assert isinstance(off, Off) and str(tmp_path) in off.where and off.hint
    ring = make(tmp_path)
    ring.emit(event(0))
    assert isinstance(Ring.create(ring.path), Off)
    assert numbers(read(ring)[0]) == [0]


def test_file_is_allocated_before_it_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    allocate, map_ = os.posix_fallocate, mmap.mmap

    def allocates(fd: int, offset: int, size: int) -> None:
        order.append("allocate")
        allocate(fd, offset, size)

    def maps(fd: int, size: int, offset: int = 0) -> mmap.mmap:
        order.append("map")
        return map_(fd, size, offset=offset)

    monkeypatch.setattr(os, "posix_fallocate", allocates)
    monkeypatch.setattr(mmap, "mmap", maps)
    make(tmp_path)
    assert order == ["allocate", "map", "map"]


def damaged(ring: Ring, at: int, data: bytes) -> None:
    with open(ring.path, "r+b") as file:
        file.seek(HEADER_BYTES + at)
        file.write(data)


def test_torn_record_is_cut_out_and_counted(tmp_path: Path) -> None:
    ring = make(tmp_path)
    for n in range(20):
        ring.emit(event(n, 40))
    size = RingReader.open(ring.path).head // 20
    damaged(ring, 7 * size + 30, b"\xff")
    events, count = read(ring)
    assert numbers(events) == [n for n in range(20) if n != 7]
    assert count == RingCount(stored=19, dropped=1, torn=1)
    assert events[7] == {"ev": "dropped", "count": 1, "reason": "damaged"}


def test_last_record_torn_is_missing_at_the_end(tmp_path: Path) -> None:
    ring = make(tmp_path)
    for n in range(3):
        ring.emit(event(n))
    damaged(ring, RingReader.open(ring.path).head - 12, b"\xff\xff\xff\xff")
    events, count = read(ring)
    assert numbers(events) == [0, 1] and count.torn == 1


def test_what_is_no_ring_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ring"
    for data in (b"", b"HKV ring", bytes(8192), os.urandom(8192)):
        path.write_bytes(data)
        with pytest.raises(RingError):
            RingReader.open(path)


def test_newer_ring_is_refused_with_what_to_do(tmp_path: Path) -> None:
    ring = make(tmp_path)
    with open(ring.path, "r+b") as file:
        file.seek(8)
        file.write(struct.pack("=I", 99))
    with pytest.raises(RingError, match="version 99"):
        RingReader.open(ring.path)
    header = bytearray(ring.header.pack())
    with pytest.raises(RingError, match="damaged"):
        header[300] ^= 1
        RingHeader.unpack(bytes(header))


def mutate(page: bytearray, chance: random.Random) -> None:
    """Damage as it comes: a byte, a word of the header, a stretch, the end cut off."""
    kind = chance.randrange(5)
    if kind == 0:
        page[chance.randrange(len(page))] = chance.randrange(256)
    elif kind == 1:
        word = chance.choice([Word.HEAD, Word.TAIL, Word.TAIL_SEQ, Word.DROPPED_UNTIL, Word.STATE])
        value = chance.choice([0, 8, 1 << 63, (1 << 64) - 1, chance.getrandbits(16)])
        struct.pack_into("=Q", page, 8 * word, value)
    elif kind == 2:
        at = chance.randrange(HEADER_BYTES, len(page))
        page[at : at + 64] = os.urandom(len(page[at : at + 64]))
    elif kind == 3:
        del page[chance.randrange(len(page)) :]
    else:
        at = chance.randrange(HEADER_BYTES, len(page) - 64)
        page[at : at + 64] = page[HEADER_BYTES : HEADER_BYTES + 64]


def mutations(folder: Path, times: int, chance: random.Random) -> None:
    for policy in (Policy.DROP, Policy.OVERWRITE):
        ring = make(folder, capacity=4096, policy=policy)
        for n in range(200):
            ring.emit(event(n, n % 60))
        whole = Path(ring.path).read_bytes()
        target = folder / "mutated.ring"
        for _ in range(times // 2):
            page = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                if len(page) > HEADER_BYTES + 128:
                    mutate(page, chance)
            target.write_bytes(page)
            try:
                reader = RingReader.open(target)
            except RingError:
                continue
            list(reader.events())
            assert reader.count.stored <= 200


def test_mutated_rings_are_read_or_refused(tmp_path: Path) -> None:
    mutations(tmp_path, 600, random.Random(7))


@pytest.mark.soak
def test_ten_thousand_mutated_rings(tmp_path: Path) -> None:
    mutations(tmp_path, 10_000, random.Random(8))


def test_hostile_ring_is_read_in_bounded_time(tmp_path: Path) -> None:
    # Every eight bytes look like a long record, and none is one.
    ring = make(tmp_path, capacity=1 << 20)
    with open(ring.path, "r+b") as file:
        file.seek(8 * Word.HEAD)
        file.write(struct.pack("=Q", 1 << 20))
        file.seek(HEADER_BYTES)
        file.write(struct.pack("=II", 1, 1 << 24 | 500_000) * (1 << 17))
    start = time.process_time()
    assert read(ring)[1].stored == 0
    assert time.process_time() - start < 5


def test_error_text_is_bounded(tmp_path: Path) -> None:
    ring = make(tmp_path)

    class Verbose(Broken):
        def __getitem__(self, key: str) -> Any:
            raise RuntimeError("x" * 10_000)

    ring.emit(Verbose(ev="alloc"))
    assert 900 < len(RingReader.open(ring.path).error) < 1100
    assert Path(ring.path).read_bytes()[ERROR_AT + 1023] == 0
