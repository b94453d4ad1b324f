"""The compiled emitters write what the Python ones write, byte for byte, and are not needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.model.ring_format import HEADER_BYTES, Policy
from hkvtool.recorder import ring as ring_module
from hkvtool.recorder.emitters import Emitter, make_emitter
from hkvtool.recorder.native import compiled, missing
from hkvtool.recorder.ring import Ring

HERE = Path(__file__).parent

needs_both = pytest.mark.skipif(compiled is None, reason=f"not compiled: {missing}")

KEYS = ("group", "blocks", "hashes", "tokens", "req")

NUMBERS = st.integers(-(1 << 66), 1 << 66) | st.sampled_from(
    [n + d for n in (0, 1 << 15, 1 << 30, 1 << 31, 1 << 45, 1 << 62, 1 << 63) for d in (-1, 0, 1)]
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | NUMBERS.map(lambda n: -n) | st.text(max_size=9)
    | st.floats() | st.binary(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=9) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


class Writer:
    """A ring and an emitter of one of the two kinds, without a recording around it."""

    def __init__(self, folder: Path, plain: bool, policy: Policy = Policy.DROP) -> None:
        made = Ring.create(folder / f"{plain}.ring", capacity=4096, policy=policy)
        assert isinstance(made, Ring), made
        self.ring = made
        self.mine = threading.local()
        self.mine.ring = made
        self.refused: list[Any] = []
        self.publish = self.emitter("publish", KEYS, plain)

    def emitter(self, ev: str, keys: tuple[str, ...], plain: bool) -> Emitter:
        return make_emitter(self.mine, self.otherwise, ev, keys, plain)

    def otherwise(self, data: Any) -> bool:
        self.refused.append(data)
        return self.ring.emit(data)

    def records(self) -> list[bytes]:
        """What is stored, without times and what follows from them."""
        from hkvtool.model.ring_reader import RingReader

        reader = RingReader.open(self.ring.path)
        found = []
        for record in reader.records():
            payload = record.payload
            if payload[:1] == b"(":
                # The time is the third value: a tag and eight bytes behind shape and number.
                payload = payload[:15] + payload[24:]
            found.append(bytes((record.kind,)) + record.seq.to_bytes(8, "little") + payload)
        assert reader.count.torn == 0
        return found


def pair(folder: Path, policy: Policy = Policy.DROP) -> tuple[Writer, Writer]:
    return Writer(folder, False, policy), Writer(folder, True, policy)


@needs_both
@settings(max_examples=120)
@given(st.lists(st.tuples(*[VALUES] * 5), max_size=6), st.sampled_from(Policy))
def test_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[Any, ...]], policy: Policy
) -> None:
    one, other = pair(tmp_path_factory.mktemp("t"), policy)
    first = {"ev": "reset", "pool": "p"}
    assert one.ring.emit(first) == other.ring.emit(first)
    for values in told:
        assert one.publish(*values) == other.publish(*values)
        assert one.ring._head == other.ring._head and one.ring._limit == other.ring._limit
    assert repr(one.refused) == repr(other.refused)
    assert one.records() == other.records()


@needs_both
@pytest.mark.parametrize("size", [0, 1, 90, 200, 1000, 20_000, 70_000])
def test_lists_of_any_length(tmp_path: Path, size: int) -> None:
    one, other = pair(tmp_path)
    for writer in (one, other):
        writer.ring.emit({"ev": "reset"})
        writer.publish("kv", list(range(size)), [], (0, 9), None)
    assert one.refused == other.refused and one.records() == other.records()


@needs_both
@pytest.mark.parametrize("policy", list(Policy))
def test_round_and_round(tmp_path: Path, policy: Policy) -> None:
    one, other = pair(tmp_path, policy)
    for n in range(400):
        values = ("kv", [n] * (n % 40), [n << 50], [0, n], f"r{n}")
        assert one.publish(*values) == other.publish(*values), n
    assert one.records() == other.records()
    # Where the clocks were read has no say in how far the two have come.
    assert one.ring._head == other.ring._head and one.ring.next_seq == other.ring.next_seq
    assert len(one.refused) == len(other.refused)


@needs_both
@pytest.mark.parametrize("policy", list(Policy))
def test_an_event_given_as_its_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    one, other = pair(tmp_path, policy)
    for n in range(300):
        event = {"ev": "alloc", "req": f"r{n}", "blocks": list(range(n % 50)), "step": n}
        monkeypatch.setattr(ring_module, "_COMPILED", True)
        stored = one.ring.emit(event)
        monkeypatch.setattr(ring_module, "_COMPILED", False)
        assert other.ring.emit(event) == stored, n
        assert one.ring._head == other.ring._head and one.ring.next_seq == other.ring.next_seq
    assert one.records() == other.records()


@needs_both
def test_the_whole_record_but_for_its_time(tmp_path: Path) -> None:
    one, other = pair(tmp_path)
    for writer in (one, other):
        writer.ring.emit({"ev": "reset"})
        writer.publish("kv", [7, 1 << 20], [1 << 61], None, "réq")
    pages = [bytearray(Path(w.ring.path).read_bytes()[HEADER_BYTES:]) for w in (one, other)]
    for page in pages:
        # The tuple with its length: a checksum or a clock may hold the one byte.
        begin = page.index(b"(\x08\x00\x00\x00")
        # Both checksums take the time in.
        for checksum in (0, begin - 8):
            page[checksum : checksum + 4] = bytes(4)
        for clock in (16, begin + 16):
            page[clock : clock + 8] = bytes(8)
    assert pages[0] == pages[1]


@needs_both
@pytest.mark.parametrize("plain", [False, True])
def test_arguments_by_name_and_wrong_ones(tmp_path: Path, plain: bool) -> None:
    writer = Writer(tmp_path, plain)
    writer.ring.emit({"ev": "reset"})
    assert writer.publish("kv", blocks=[1], hashes=[2], req="r", tokens=None)
    for given_, named in [
        ((), {}), (("kv",), {}), (("kv", 1, 2, 3, 4, 5), {}), (("kv", 1, 2, 3, 4), {"req": 1}),
        (("kv", 1, 2, 3), {"request": 1}), (("kv", 1, 2, 3), {"group": "kv"}),
    ]:  # fmt: skip
        with pytest.raises(TypeError):
            writer.publish(*given_, **named)
    assert len(writer.records()) == 2 and not writer.refused


@needs_both
@pytest.mark.parametrize("plain", [False, True])
def test_a_thread_without_a_ring_and_a_closed_one(tmp_path: Path, plain: bool) -> None:
    writer = Writer(tmp_path, plain)
    ring, writer.mine.ring = writer.mine.ring, None
    assert writer.publish("kv", [1], [2], None, None)
    assert writer.refused == [{"ev": "publish", "group": "kv", "blocks": [1], "hashes": [2]}]
    del writer.mine.ring
    assert writer.publish("kv", [1], [2], None, None)
    writer.mine.ring = ring
    ring.pause()
    assert not writer.publish("kv", [1], [2], None, None)
    ring.go_on()
    assert writer.publish("kv", [1], [2], None, None)
    ring.close()
    assert not writer.publish("kv", [1], [2], None, None)
    assert len(writer.refused) == 4


@needs_both
@pytest.mark.skipif(sys.version_info < (3, 12), reason="no Python code answers for a buffer")
def test_a_ring_that_is_closed_while_a_value_is_serialized(tmp_path: Path) -> None:
    writer = Writer(tmp_path, False)
    writer.ring.emit({"ev": "reset"})

    class Closes:
        def __buffer__(self, flags: int) -> memoryview:
            writer.ring.close()
            return memoryview(b"")

    assert not writer.publish("kv", [1], Closes(), None, None)
    assert not writer.publish("kv", [1], [2], None, None)


WITHOUT = ["test_ring.py", "test_emitters.py", "test_crash.py", "test_recording.py"]


@needs_both
def test_the_rings_tests_pass_without_it() -> None:
    root = HERE.parents[1]
    run = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-m", "pytest", "-q", "-c",
         str(root / "pyproject.toml"), f"--rootdir={root}", "-p", "no:cacheprovider", "-p",
         "no:xdist", *(str(HERE / name) for name in WITHOUT)],
        env={**os.environ, "HKV_NATIVE": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]


@pytest.mark.parametrize("value", ["0", "off", "no"])
def test_it_can_be_left_out(value: str) -> None:
    text = (
        "from hkvtool.recorder.native import compiled, missing; import sys;"
        "from hkvtool.recorder.ring import Ring; from hkvtool.recorder.cursor import PlainCursor;"
        "assert compiled is None and 'HKV_NATIVE' in missing and issubclass(Ring, PlainCursor);"
        "assert 'hkvtool.recorder._ring' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, "HKV_NATIVE": value}, check=True
    )
