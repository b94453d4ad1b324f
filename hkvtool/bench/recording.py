"""What recording costs as a whole: in the program, in the sealer, on disk, and when it is off."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time

from hkvtool.model.jsonl import write_line
from hkvtool.model.recording import read_recording, ring_files
from hkvtool.model.ring_format import HEADER_BYTES, Policy, RingHeader
from hkvtool.model.ring_reader import held_bytes
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.store.ingesting import ingest
from hkvtool.store.segments import segment_rows

_STEPS, _REQUESTS, _BLOCKS = 2_000, 16, 20_000
_CALLS = 200_000


@dataclass(frozen=True)
class RecordCost:
    """Of a busy decode loop: nanoseconds of processor time an event in the program, in the sealer
    and at ingest, and that each further block of an event adds; bytes an event in the ring,
    sealed, in the trace, and as JSON lines; events a step; nanoseconds that a function takes more
    while its hook is off, and once it is detached."""

    events: int
    events_a_step: float
    emit_ns: float
    block_ns: float
    seal_ns: float
    ingest_ns: float
    ring_bytes: float
    sealed_bytes: float
    trace_bytes: float
    json_bytes: float
    dropped: int
    off_ns: float
    detached_ns: float


def record_cost(folder: Path | None = None) -> RecordCost:
    """Measure it here. `folder` is where the files go for the time being."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="hkvtool-") as place:
        off, detached = _wrapped()
        name = os.path.join(place, "t.hkv")
        recording = Recording.start(name, policy=Policy.DROP, ring_bytes=1 << 25)
        assert isinstance(recording, Recording)
        sealer = Sealer(name)
        begin = process_time()
        events = _decode(recording, lambda *values: True)
        idle = process_time() - begin
        begin = process_time()
        events = _decode(recording, None)
        emitting = process_time() - begin - idle
        recording.close()
        held = sum(_held(path) for path in ring_files(name))
        import pyarrow.parquet  # noqa: F401 (loading it is not what sealing costs)

        begin = process_time()
        sealer.poll(last=True)
        sealing = process_time() - begin
        sealer.close()
        begin = process_time()
        summary, count = ingest(name, os.path.join(place, "t.duckdb"))
        ingesting = process_time() - begin
        trace = os.path.getsize(os.path.join(place, "t.duckdb"))
        each = 1e9 / events
        told = read_recording(name, rows_of=segment_rows)
        lines = sum(len(write_line(event)) + 1 for event in told)
        return RecordCost(
            events, events / _STEPS, emitting * each, _block(Path(place)), sealing * each,
            ingesting * each, held / events, sealer.bytes / events, trace / summary.events,
            lines / events, count.rings.dropped, off, detached,
        )  # fmt: skip


def _block(folder: Path) -> float:
    """Nanoseconds that a block more takes, of events of 1 and of 65: the least of some rounds."""
    made = Recording.start(folder / "b.hkv", policy=Policy.OVERWRITE, ring_bytes=1 << 20)
    assert isinstance(made, Recording)
    alloc = made.emitter("alloc", ("req", "group", "blocks"))
    lists = {1: [40123], 65: [n * 7919 % 65536 for n in range(65)]}
    least = dict.fromkeys(lists, float("inf"))
    for _ in range(20):
        for size, blocks in lists.items():
            begin = process_time()
            for _ in range(1000):
                alloc("r12", "full", blocks)
            least[size] = min(least[size], (process_time() - begin) * 1e6)
    made.close()
    return (least[65] - least[1]) / 64


def _held(path: str) -> int:
    """Bytes of records in a ring."""
    with open(path, "rb") as file:
        page = file.read(HEADER_BYTES)
    return held_bytes(RingHeader.unpack(page), page)


def _decode(recording: Recording, instead: Callable[..., bool] | None) -> int:
    """A step after the other, as a scheduler tells them: each request is given a block every
    sixteenth step, writes and publishes; one ends now and then and gives its blocks back. With
    `instead` nothing is recorded: what is left is the loop itself."""
    prepare = recording.emitter if instead is None else lambda ev, keys: instead
    dispatch = prepare("dispatch", ("step", "reqs"))
    alloc = prepare("alloc", ("req", "group", "blocks", "tokens"))
    write = prepare("write", ("step", "req", "group", "blocks", "tokens"))
    publish = prepare("publish", ("req", "group", "blocks", "hashes", "tokens"))
    free = prepare("free", ("req", "group", "blocks"))
    retire = prepare("retire", ("step",))
    chance, spare = Random(1), list(range(1, _BLOCKS))
    chance.shuffle(spare)
    tables: dict[str, list[int]] = {f"request-{n:05}": [] for n in range(_REQUESTS)}
    lengths = {req: 7 * n for n, req in enumerate(tables)}
    told, born = 0, _REQUESTS
    for step in range(_STEPS):
        told += 2 + len(tables)
        dispatch(step, list(tables))
        for req, table in list(tables.items()):
            length = lengths[req]
            if length // 16 >= len(table):
                block = spare.pop()
                table.append(block)
                alloc(req, "full", [block], [length, length + 16])
                publish(req, "full", table[-1:], [f"{block * 2654435761:016x}"], [0, length])
                told += 2
            write(step, req, "full", table[-1:], [length, length + 1])
            lengths[req] = length + 1
            if length > 400 + 13 * len(req) and chance.random() < 0.02:
                free(req, "full", table[::-1])
                told += 1
                spare[:0] = table
                del tables[req], lengths[req]
                new = f"request-{born:05}"
                tables[new], lengths[new], born = [], 0, born + 1
        retire(step)
    return told


def _wrapped() -> tuple[float, float]:
    """Nanoseconds that a method takes more: with a hook that finds nothing to record to, and once
    its hook was taken out. The three take turns, and the least of each counts."""

    class Pool:
        def plain(self, blocks: list[int]) -> int:
            return len(blocks)

        def hooked(self, blocks: list[int]) -> int:
            return len(blocks)

        def detached(self, blocks: list[int]) -> int:
            return len(blocks)

    original = Pool.hooked
    emit: Callable[..., bool] | None = None

    def hook(self: Pool, blocks: list[int]) -> int:
        found = original(self, blocks)
        if emit is not None:
            emit(blocks)
        return found

    Pool.hooked = hook  # type: ignore[method-assign]
    before = Pool.detached
    Pool.detached = lambda self, blocks: before(self, blocks)  # type: ignore[method-assign]
    Pool.detached = before  # type: ignore[method-assign]
    pool, blocks = Pool(), [1, 2]
    ways = {"plain": pool.plain, "hooked": pool.hooked, "detached": pool.detached}
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(9):
        for name, way in ways.items():
            begin = process_time()
            for _ in range(_CALLS // 9):
                way(blocks)
            least[name] = min(least[name], (process_time() - begin) / (_CALLS // 9) * 1e9)
    return least["hooked"] - least["plain"], least["detached"] - least["plain"]
