"""Prepared emitters: the same events as `emit`, with the same exact counts."""

from __future__ import annotations

import marshal
import os
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.model.codec import CodecError
from hkvtool.model.codec_packed import MARSHAL_VERSION, head_of, shape_of, unpack
from hkvtool.model.recording import RecordingCount, read_recording, stage_of
from hkvtool.model.ring_drain import RingDrain
from hkvtool.model.ring_format import Policy, Word
from hkvtool.recorder.recording import Recording

KEYS = ("req", "group", "blocks", "tokens")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=9)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


def start(folder: Path, **options: Any) -> Recording:
    made = Recording.start(folder, **options)
    assert isinstance(made, Recording), made
    return made


def read(folder: Path) -> tuple[list[dict[str, Any]], RecordingCount]:
    count = RecordingCount(stage_of(folder))
    events = [dict(e.data) for e in read_recording(folder, count)]
    return [{k: v for k, v in e.items() if k not in ("ts", "seq")} for e in events], count


def test_same_events_as_emit(tmp_path: Path) -> None:
    with start(tmp_path / "t.hkv") as recording:
        alloc = recording.emitter("alloc", KEYS)
        for n in range(50):
            assert alloc(f"r{n}", "kv", list(range(n)), None if n % 2 else (0, 16 * n))
            assert recording.emit("free", req=f"r{n}", group="kv", blocks=[n])
        assert alloc(blocks=[7], req="r", group="kv", tokens=None)
    events, count = read(tmp_path / "t.hkv")
    assert events[0] == {"ev": "alloc", "req": "r0", "group": "kv", "blocks": [], "tokens": [0, 0]}
    assert events[2] == {"ev": "alloc", "req": "r1", "group": "kv", "blocks": [0]}
    assert events[-1] == {"ev": "alloc", "req": "r", "group": "kv", "blocks": [7]}
    assert (count.rings.stored, count.rings.dropped) == (101, 0)


@settings(max_examples=40)
@given(st.lists(VALUES, min_size=4, max_size=4))
def test_any_value_comes_back(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("t") / "t.hkv"
    with start(folder, ring_bytes=1 << 16) as recording:
        alloc, ready = recording.emitter("alloc", KEYS), recording.emit("reset")
        stored = alloc(*values)
    events, count = read(folder)
    wanted = {"ev": "alloc", **{k: v for k, v in zip(KEYS, values, strict=True) if v is not None}}
    assert ready and stored and events[1] == wanted and count.rings.dropped == 0


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800", b"bytes", {1: 2}])
def test_what_is_no_json_is_dropped_and_the_next_one_stored(tmp_path: Path, value: Any) -> None:
    with start(tmp_path / "t.hkv") as recording:
        alloc = recording.emitter("alloc", KEYS)
        assert alloc("r", "kv", [1], None)
        alloc("r", "kv", value, None)
        assert alloc("r", "kv", [2], None)
    events, count = read(tmp_path / "t.hkv")
    assert [e["blocks"] for e in events if e["ev"] == "alloc"] == [[1], [2]]
    assert count.rings.emitted == 3 and count.rings.dropped == 1


def test_events_that_there_are_none_of_are_refused(tmp_path: Path) -> None:
    with start(tmp_path / "t.hkv") as recording:
        for ev, keys in (("allocate", ("req",)), ("alloc", ("hit",)), ("alloc", ("req", "req"))):
            with pytest.raises(CodecError):
                recording.emitter(ev, keys)


ACTIONS = st.lists(st.tuples(st.sampled_from("ped"), st.integers(0, 300)), max_size=150)
"""A packed event, a plain one, or a drain."""


@given(ACTIONS, st.sampled_from([4096, 5000, 12_000]))
def test_emitted_is_stored_plus_dropped(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]], capacity: int
) -> None:
    folder = tmp_path_factory.mktemp("t") / "t.hkv"
    recording = start(folder, ring_bytes=capacity)
    write = recording.emitter("write", ("step", "blocks"))
    assert recording.emit("write", step=-1, blocks=[])
    drain = RingDrain(next(folder.glob("*-0000-*.ring")))
    found: list[dict[str, Any]] = []
    stored, emitted = [-1], 0
    for action, size in actions:
        if action == "d":
            found += [data for _, data in drain.take()]
            continue
        blocks = list(range(size))
        one = (
            write(emitted, blocks)
            if action == "p"
            else recording.emit("write", step=emitted, blocks=blocks)
        )
        stored += [emitted] * one
        emitted += 1
    recording.close()
    found += [data for _, data in drain.take(last=True)]
    drain.close()
    assert [e["step"] for e in found if e["ev"] == "write"] == stored
    told = sum(e["count"] for e in found if e["ev"] == "dropped")
    assert (drain.count.stored, drain.count.dropped) == (len(stored), told)
    assert told == emitted + 1 - len(stored) and drain.count.torn == 0


@given(st.lists(st.integers(0, 300), max_size=200))
def test_flight_recorder_keeps_the_latest(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("t") / "t.hkv"
    with start(folder, policy=Policy.OVERWRITE, ring_bytes=4096) as recording:
        write = recording.emitter("write", ("step", "blocks"))
        for n, size in enumerate(sizes):
            assert write(n, list(range(size)))
    events, count = read(folder)
    kept = [e["step"] for e in events]
    assert kept == list(range(len(sizes) - len(kept), len(sizes)))
    assert count.rings.torn == count.rings.dropped == 0 and count.rings.emitted == len(sizes)


def test_growing_recording_goes_on_in_the_next_ring(tmp_path: Path) -> None:
    with start(tmp_path / "t.hkv", policy=Policy.GROW, ring_bytes=1 << 14) as recording:
        write = recording.emitter("write", ("step", "blocks"))
        assert sum(write(n, [n]) for n in range(3000)) == 3000
    assert len(list((tmp_path / "t.hkv").glob("*.ring"))) > 4
    assert [e["step"] for e in read(tmp_path / "t.hkv")[0]] == list(range(3000))


def test_threads_and_forked_children_have_rings_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder, ring_bytes=1 << 16) as recording:
        write = recording.emitter("write", ("step", "req", "blocks"))

        def work(name: str) -> None:
            for n in range(100):
                write(n, name, [n])

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        work("main")
        pid = os.fork()
        if not pid:
            work("child")
            os._exit(0)
        os.waitpid(pid, 0)
        for thread in threads:
            thread.join()
    events, count = read(folder)
    for name in ("main", "child", "t0", "t1", "t2"):
        assert [e["step"] for e in events if e["req"] == name] == list(range(100))
    assert count.rings.stored == 500


def test_emitter_after_the_end_is_refused(tmp_path: Path) -> None:
    recording = start(tmp_path / "t.hkv")
    write = recording.emitter("write", ("step",))
    assert write(1)
    recording.close()
    assert not write(2)


def test_emit_from_inside_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with start(folder) as recording:
        write = recording.emitter("write", ("step", "blocks"))

        class Emits(dict[str, Any]):
            def keys(self) -> Any:
                write(5, [])
                return super().keys()

            def items(self) -> Any:
                write(5, [])
                return super().items()

            def __iter__(self) -> Any:
                write(5, [])
                return super().__iter__()

        assert write(1, [])
        recording.emit_dict(Emits(ev="write", step=2))
        assert write(3, [])
    events, count = read(folder)
    assert [e["step"] for e in events if e["ev"] == "write"] == [1, 2, 3]
    assert count.rings.dropped >= 1


def test_damaged_packed_records_are_read_or_cut_out(tmp_path: Path) -> None:
    folder, chance = tmp_path / "t.hkv", random.Random(3)
    with start(folder, ring_bytes=1 << 14) as recording:
        write = recording.emitter("write", ("step", "req", "blocks"))
        for n in range(100):
            write(n, "r", list(range(n % 7)))
    ring = next(folder.glob("*-0000-*.ring"))
    whole = ring.read_bytes()
    used = int.from_bytes(whole[8 * Word.HEAD :][:8], "little")
    for _ in range(200):
        page = bytearray(whole)
        at = 4096 + chance.randrange(used)
        page[at] ^= 1 << chance.randrange(8)
        ring.write_bytes(page)
        events, count = read(folder)
        assert count.rings.emitted == 100 and count.rings.stored in (99, 100)
        steps = [e["step"] for e in events if e["ev"] == "write"]
        assert steps == sorted(set(steps)) and len(steps) == count.rings.stored


def payload(*values: Any) -> bytes:
    shape, _ = shape_of("alloc", KEYS)
    return marshal.dumps((shape, 5, 1234.5, *values), MARSHAL_VERSION)


def test_head_is_read_without_the_values() -> None:
    found = payload("r", "kv", [1], [0, 16])
    code, seq, ts = head_of(found)
    assert (code, seq, ts) == (8, 5, 1_234_500_000_000)
    whole = unpack(found)
    assert (whole.seq, whole.ts, whole.data["ev"]) == (seq, ts, "alloc")


def test_no_bytes_crash_the_reader() -> None:
    chance = random.Random(5)
    whole = payload("réq" * 9, None, [1 << 40, -2, [], {}, {"a": [1.5, True]}], [0, 16])
    for _ in range(10_000):
        page = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            page[chance.randrange(len(page))] = chance.randrange(256)
        with suppress(CodecError):
            unpack(bytes(page[: chance.randint(1, len(page))]))
