"""Any moment from the keyframe before it is the moment that a fold from the start reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.model.errors import TraceError
from hkvtool.state import arrays as a
from hkvtool.state import keyframes
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.excerpt import Excerpt
from hkvtool.state.keyframes import Chunk, Keyframe, restored
from hkvtool.state.overview import blocks_of
from hkvtool.state.soundness import CHAINS, PLACES
from hkvtool.state.standing import COMPONENT, ENTRY, SLOT, Standing
from hkvtool.store import open_trace
from hkvtool.store.moments import fold_at, packed, unpacked
from tests.state.fold_facts import facts
from tests.state.hostile import DECLARED, hostile
from tests.state.traces import Data, Plain, imported, parted, valid, written

SEEDS = st.integers(0, 1 << 30)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Keyframes, chunks and what is called long so small that short traces have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyframes, "CHUNK", 8)
        patch.setattr(keyframes, "EVERY", 9)
        patch.setattr(keyframes, "WHOLE_EVERY", 3)
        patch.setattr("hkvtool.store.moments.PLAIN_LIMIT", 0)
        # What is dead is forgotten soon.
        patch.setattr("hkvtool.state.fold.FEW", 3)
        patch.setattr("hkvtool.state.compiled.FEW", 3)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyframes")


def standing(frames: list[Keyframe]) -> list[Chunk]:
    """What stands in every chunk at the last keyframe."""
    first = max(i for i, frame in enumerate(frames) if frame.whole)
    found: dict[tuple[str, int], Chunk] = {}
    for frame in frames[first:]:
        found.update({(c.field, c.number): c for c in frame.chunks})
    return list(found.values())


def check_every_keyframe(path: Path) -> None:
    with open_trace(path) as trace:
        plain = Plain(list(trace.events()))
        frames: list[Keyframe] = []
        for frame in keyframes.keyframes(trace, 9):
            frames.append(frame)
            fold = restored(trace, frame.pos, standing(frames))
            assert not parted(facts(fold, plain.blocks), plain.until(frame.pos)), frame.pos
        if frames:
            # It goes on from there.
            fold.advance(since=frames[-1].pos + 1)
            assert not parted(facts(fold, plain.blocks), plain.until(trace.meta["last_pos"]))


@settings(max_examples=40)
@given(SEEDS)
def test_a_hostile_stream(folder: Path, seed: int) -> None:
    lines = hostile(seed, 120)
    if lines:
        check_every_keyframe(written(folder, lines))


@settings(max_examples=2)
@given(SEEDS)
def test_what_a_correct_engine_records(folder: Path, seed: int) -> None:
    check_every_keyframe(written(folder, valid(seed)[:800]))


@pytest.mark.soak
@settings(max_examples=2000)
@given(SEEDS)
def test_many_streams(folder: Path, seed: int) -> None:
    lines = hostile(seed, 200) if seed % 4 else valid(seed)[:1500]
    if lines:
        check_every_keyframe(written(folder, lines))


@pytest.mark.parametrize("lines", [hostile(11, 300), valid(5)], ids=["hostile", "valid"])
def test_any_moment_of_a_stored_trace(folder: Path, lines: list[Data]) -> None:
    moments = sorted(Random(1).choices(range(len(lines) + 1), k=12))
    with open_trace(imported(folder, lines)) as trace:
        assert trace.select("SELECT count(DISTINCT pos) FROM keyframes").fetchone()[0] > 3
        plain = Plain(list(trace.events()))
        for pos in moments:
            fold = fold_at(trace, pos)
            assert not parted(facts(fold, plain.blocks), plain.until(pos)), pos
            frame = trace.keyframe(pos)
            assert frame is None or frame[0] <= pos


def test_a_short_trace_has_none(folder: Path) -> None:
    with open_trace(imported(folder, DECLARED)) as trace:
        assert trace.keyframe(10**9) is None


def test_what_did_not_change_is_not_kept_again(folder: Path) -> None:
    quiet = [{"ev": "touch", "pool": "gpu", "blocks": [1]}] * 60
    lines = [*DECLARED, {"ev": "alloc", "group": "kv", "blocks": [1, 2], "req": "a"}, *quiet]
    with open_trace(written(folder, lines)) as trace:
        frames = list(keyframes.keyframes(trace, 9))
    assert [frame.whole for frame in frames[:5]] == [True, False, False, True, False]
    kept = [{c.field for c in frame.chunks if len(c.values)} for frame in frames]
    assert kept[1] == {"refs", "touch"}
    assert kept[0] == kept[3] > {"refs", "gen", "touch"}
    # Untouched stretches are not even in a whole one.
    assert not kept[0] & {"cid", "pver"}


def test_hashes_that_were_forgotten_between_two_keyframes(folder: Path) -> None:
    many = [
        {"ev": "publish", "group": "kv", "blocks": [b], "hashes": [f"h{b}-{i}"]}
        for i in range(20) for b in (1, 2, 3)
    ]  # fmt: skip
    few = [{"ev": "publish", "group": "kv", "blocks": [1], "hashes": [f"i{i}"]} for i in range(9)]
    check_every_keyframe(written(folder, [*DECLARED, *many, {"ev": "reset"}, *few, *few]))


# --- files that somebody altered -----------------------------------------------------------


@pytest.fixture(scope="module")
def frame(folder: Path) -> tuple[Path, int, dict[tuple[str, int], Chunk]]:
    """A keyframe in which every list and chain leads somewhere."""
    lines = [
        *DECLARED,
        {"ev": "alloc", "group": "kv", "blocks": [1, 2, 3, 4], "req": "a", "tokens": [0, 16]},
        {"ev": "write", "group": "kv", "blocks": [1, 2, 3, 4], "req": "a", "tokens": [0, 16]},
        {"ev": "publish", "group": "kv", "blocks": [1, 2], "hashes": ["h", "h"]},
        {"ev": "publish", "group": "kv", "blocks": [1, 2], "hashes": ["i", "h"]},
        {"ev": "free", "group": "kv", "blocks": [3, 4]},
        {"ev": "write", "group": "w", "blocks": [1], "req": "a", "tokens": [0, 2]},
        {"ev": "store_begin", "handle": "t", "group": "kv", "blocks": [1], "to": "cpu", "peer": [0]},
        *[{"ev": "pin", "pool": "gpu", "blocks": [1]}] * 2,
    ]  # fmt: skip
    path = written(folder / "..", lines)
    with open_trace(path) as trace:
        (found,) = keyframes.keyframes(trace, 9)
    return path, found.pos, {(c.field, c.number): c for c in found.chunks}


def opened(frame: Any, changed: dict[tuple[str, int], Chunk] | None = None) -> CompiledFold:
    path, pos, chunks = frame
    with open_trace(path) as trace:
        return restored(trace, pos, {**chunks, **(changed or {})}.values())


def altered(frame: Any, field: str, index: int, value: int) -> dict[tuple[str, int], Chunk]:
    """One integer of one array is another."""
    number, place = divmod(index, 8)
    empty = a.EXTENTS[field].empty
    there = frame[2].get((field, number))
    values = there.values.copy() if there else np.full(8, empty)
    values[place] = value
    return {(field, number): Chunk(field, number, values)}


def test_a_keyframe_as_it_was_opens(frame: Any) -> None:
    opened(frame)


@pytest.mark.parametrize("field", [field for fields in PLACES.values() for field in fields])
@pytest.mark.parametrize("value", [1 << 40, -7])
def test_a_place_that_is_none(frame: Any, field: str, value: int) -> None:
    with pytest.raises(TraceError) as caught:
        opened(frame, altered(frame, field, 0, value))
    assert field in caught.value.what and "altered" in caught.value.hint


@pytest.mark.parametrize("field", ["e_next_hash", "e_next_slot", *CHAINS])
def test_a_chain_that_goes_round(frame: Any, field: str) -> None:
    index = 0 if field.startswith("e_") else 3
    with pytest.raises(TraceError):
        opened(frame, altered(frame, field, index, index))


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk("nothing", 0, np.zeros(0)),
        Chunk("_fields", 0, np.zeros(1)),
        Chunk("gen", 1 << 40, np.zeros(8)),
        Chunk("gen", -1, np.zeros(8)),
        Chunk("gen", 1, np.zeros(8000)),
        Chunk("e_gen", 0, np.zeros(8000)),
    ],
    ids=lambda chunk: f"{chunk.field}-{chunk.number}-{len(chunk.values)}",
)
def test_a_chunk_that_fits_nowhere(frame: Any, chunk: Chunk) -> None:
    with pytest.raises(TraceError):
        opened(frame, {(chunk.field, chunk.number): chunk})


def excerpt(frame: Any, changed: dict[tuple[str, int], Chunk] | None = None) -> Excerpt:
    """A fold of some blocks from the same keyframe, all of which were asked for."""
    path, pos, chunks = frame
    there = {**chunks, **(changed or {})}

    def read(fields: Any, numbers: Any) -> list[Chunk]:
        return [c for (field, number), c in there.items()
                if field in fields and (numbers is None or number in numbers)]  # fmt: skip

    with open_trace(path) as trace:
        fold = Excerpt(trace, Standing(str(path), pos, read))
        fold.include(np.arange(12))
        for pool in fold.declared.pools.values():
            fold.overviewed(pool, blocks_of(pool))
        return fold


def test_some_blocks_of_a_keyframe_open(frame: Any) -> None:
    fold = excerpt(frame)
    pool = fold.declared.pools["gpu"]
    assert facts(fold, range(8))["gpu", 1] == facts(opened(frame), range(8))["gpu", 1]
    assert fold.slots_of(pool).keys() == opened(frame).slots_of(pool).keys()
    number = fold.names.find("hash", "h")
    blocks = [int(fold.block_of[slot]) for slot in fold.led_to(number)]
    assert blocks == [int(opened(frame).block_of[s]) for s in opened(frame).led_to(number)]


@pytest.mark.parametrize(
    "field", [f for fields in PLACES.values() for f in fields if f in (*SLOT, *COMPONENT, *ENTRY)]
)
@pytest.mark.parametrize("value", [1 << 40, -7])
def test_a_place_that_is_none_among_some_blocks(frame: Any, field: str, value: int) -> None:
    with pytest.raises(TraceError):
        excerpt(frame, altered(frame, field, 1, value))


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk("gen", 0, np.zeros(0, np.int64)),
        Chunk("steps", 0, np.full(8, 1 << 70, object)),
        Chunk("steps", 1 << 40, np.zeros(8, np.int64)),
        Chunk("owner", 0, np.full(8, 1 << 40)),
        Chunk("first_entry", 0, np.full(8, 1 << 20)),
        Chunk("first_entry", 0, np.full(8, 1)),
        Chunk("arena", 0, np.full(8, 1 << 40)),
        Chunk("t_off", 0, np.full(1, -1)),
        Chunk("seen_form", 0, np.full(8, 99)),
        Chunk("seen_code", 0, np.full(8, 255)),
        Chunk("seen_flags", 0, np.full(8, -1)),
        Chunk("seen_flags", 1 << 40, np.zeros(8, np.int64)),
    ],
    ids=lambda chunk: f"{chunk.field}-{chunk.number}",
)
def test_chunks_that_make_no_sense_among_some_blocks(frame: Any, chunk: Chunk) -> None:
    with pytest.raises(TraceError):
        excerpt(frame, {(chunk.field, chunk.number): chunk})


@pytest.mark.parametrize("values", [[], [0, -1, 127], [-129], [1 << 31], [-(1 << 62), 5]])
def test_a_chunk_is_packed_into_the_fewest_bytes(values: list[int]) -> None:
    column = np.array(values, np.int64)
    size, data = packed(column)
    assert unpacked(data, size).tolist() == values
    assert size <= 8 * len(values) and (values != [0, -1, 127] or size == 3)


def test_a_chunk_of_an_earlier_version_is_read() -> None:
    column = np.arange(100)
    data = bytes(pa.Codec("zstd").compress(column.tobytes()))
    assert unpacked(data, 800).tolist() == column.tolist()


@pytest.mark.parametrize("data", [b"", b"\x03abc", b"\x04abc", bytes(60)])
def test_a_chunk_that_cannot_be_unpacked_is_told(tmp_path: Path, data: bytes) -> None:
    trace = open_trace(imported(tmp_path, valid(5)))
    with trace, pytest.raises(TraceError, match="cannot be unpacked"):
        trace._stored_chunks = lambda wanted: [("h", 0, 80, data)]
        list(trace._chunks(""))


@pytest.mark.parametrize("place", [a.ENTRIES, a.ARENA])
@pytest.mark.parametrize("value", [-1, 1 << 40])
def test_a_header_that_lies_of_what_is_in_use(frame: Any, place: int, value: int) -> None:
    with pytest.raises(TraceError):
        opened(frame, altered(frame, "h", place, value))


@pytest.mark.parametrize("place", [a.COMPONENTS, a.USED, a.TABLES, a.MAPPED])
def test_a_header_that_lies_of_what_is_declared(frame: Any, place: int) -> None:
    assert opened(frame, altered(frame, "h", place, 99)).st.h[place] != 99
