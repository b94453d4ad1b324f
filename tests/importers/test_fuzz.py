"""Importers and the decoder of the wire are total: whatever the bytes, lines come out or one error
that says where, in bounded time and memory."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import msgpack
import pytest

from hkvtool.importers import importing
from hkvtool.importers.kv_batch import batch_time, read_batch
from hkvtool.importers.lines import Line
from hkvtool.importers.listening import KvStream
from hkvtool.model.errors import TraceError
from hkvtool.model.events import check_keys
from hkvtool.recorder.vllm.privacy import Keyed, names_under
from importers import samples as made
from importers.mutations import mutated

DEFAULT, SOAK = 300, 100_000
MOST_SECONDS = 5.0
MOST_GROWTH_KIB = 512 << 10
MOST_LINES = 200_000

FORMATS = {
    "kv-events.jsonl": "kv-events",
    "dynamo.jsonl": "dynamo",
    "trtllm.json": "trtllm",
    "kv-canary.log": "kv-canary",
    "lmcache-storage.lct": "lmcache",
    "lmcache-events.lct": "lmcache",
    "torch-memory.pickle": "torch-memory",
}

KEYED = Keyed(names_under(b"k" * 32))


def wire_map() -> bytes:
    """A batch as vLLM 0.32 publishes it."""
    stored = {
        "type": "BlockStored", "block_hashes": [b"\x01" * 32, b"\x02" * 32], "parent_block_hash": None,
        "token_ids": list(range(32)), "block_size": 16, "lora_id": None, "medium": "GPU",
        "lora_name": None, "group_idx": 1, "kv_cache_spec_kind": "sliding_window",
        "kv_cache_spec_sliding_window": 128,
    }  # fmt: skip
    removed = {"type": "BlockRemoved", "block_hashes": [-5, 7, 1 << 63], "medium": "CPU"}
    packed: bytes = msgpack.packb([1.5, [stored, removed, {"type": "AllBlocksCleared"}], 0])
    return packed


def wire_array() -> bytes:
    """A batch as earlier releases published it."""
    events = [
        ["BlockStored", [1, 2], None, [3] * 32, 16, None, "GPU"],
        ["BlockRemoved", [1]],
        ["AllBlocksCleared"],
    ]
    packed: bytes = msgpack.packb([2.5, events])
    return packed


def captured() -> bytes:
    """Two batches as a subscriber wrote them down."""
    batches = enumerate((wire_map(), wire_array()))
    return b"".join(b'{"batch": %d, "payload": "%s"}\n' % (n, d.hex().encode()) for n, d in batches)


def sample_of(name: str) -> bytes:
    return captured() if name == "kv-events.jsonl" else made.FILES[name]()


def judged(lines: Iterator[Line]) -> int:
    """How many lines; each must be an event as the format has it, a gap must say where it is."""
    count = 0
    for line in lines:
        assert check_keys(line) is None, line
        if line["ev"] == "dropped":
            assert "offset " in line["reason"], line
        count += 1
        assert count < MOST_LINES
    return count


def of_file(importer: str, path: Path) -> Callable[[bytes], None]:
    chosen = importing.named(importer)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        chosen.sniff(path, data[:4096])
        try:
            judged(chosen.read(path, KEYED))
        except TraceError as e:
            assert e.where, e.what

    return read


def of_wire() -> Callable[[bytes], None]:
    stream = KvStream(KEYED)

    def read(data: bytes) -> None:
        batch_time(data)
        batch = read_batch(data)
        assert all(0 <= offset <= len(data) for offset, _ in batch.problems)
        judged(stream.batch("p", 0, data))

    return read


def worked(sample: bytes, read: Callable[[bytes], None], count: int, seed: int) -> None:
    read(sample)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, data in enumerate(mutated(sample, count, seed)):
        began = process_time()
        try:
            read(data)
        except Exception as e:
            raise AssertionError(f"mutation {number} of seed {seed}: {data[:400]!r}") from e
        assert process_time() - began < MOST_SECONDS, (number, seed)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_GROWTH_KIB


@pytest.mark.parametrize("sample", FORMATS)
def test_an_importer_survives_what_it_is_given(sample: str, tmp_path: Path) -> None:
    worked(sample_of(sample), of_file(FORMATS[sample], tmp_path / sample), DEFAULT, 1)


@pytest.mark.parametrize("batch", [wire_map, wire_array, made.trtllm])
def test_the_wire_survives_what_comes_over_it(batch: Callable[[], bytes]) -> None:
    worked(batch(), of_wire(), DEFAULT, 2)


@pytest.mark.soak
@pytest.mark.parametrize("sample", FORMATS)
def test_an_importer_survives_for_long(sample: str, tmp_path: Path) -> None:
    worked(sample_of(sample), of_file(FORMATS[sample], tmp_path / sample), SOAK, 3)


@pytest.mark.soak
@pytest.mark.parametrize("batch", [wire_map, wire_array, made.trtllm])
def test_the_wire_survives_for_long(batch: Callable[[], bytes]) -> None:
    worked(batch(), of_wire(), SOAK, 4)


NAMES = (
    "0", "00", "000/00_g0", "fff/ff_g9", "m@0x0@0@", "m@0xzz@0@00.data", ".bin", ".data", "a" * 200,
    "_r0", "_g0", "config.json", "0" * 64 + "_m.bin", "0" * 64 + ".swa_m_3_2.bin", "\udcff.bin",
    "f" * 64 + "_ukv1-0123456789abcdef_L0-3", "f" * 64 + ".bin", "@0x1@1@" + "ab" * 16 + ".data",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_any_folder_is_an_inventory_or_none(seed: int, tmp_path: Path) -> None:
    import random

    rnd = random.Random(seed)
    made.cache_files(tmp_path / "f")
    for _ in range(30):
        place = tmp_path / "f" / "/".join(rnd.choices(NAMES, k=rnd.randint(1, 4)))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if rnd.random() < 0.1:
                place.symlink_to("/")
            else:
                place.write_bytes(b"\0" * rnd.choice((0, 1, 512)))
        except OSError:
            continue
    chosen = importing.named("cache-files")
    assert chosen.sniff(tmp_path / "f", b"")
    assert judged(chosen.read(tmp_path / "f", KEYED)) > 3
