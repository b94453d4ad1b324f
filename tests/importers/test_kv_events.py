"""Published events of every producer and release become the same few facts."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgpack
import pytest

from hkvtool.analyzers import check
from hkvtool.importers.kv_batch import MOST_EVENTS, batch_time, read_batch
from hkvtool.importers.kv_events import KvEvent, Reject, events_of, hash_bytes, medium_of
from hkvtool.importers.listening import KvStream
from hkvtool.model.event import Event

ONE, TWO = (1).to_bytes(8, "big"), (2).to_bytes(8, "big")


def one(value: Any) -> KvEvent:
    (found,) = events_of(value)
    return found


def pack(*events: Any, at: float = 1.0, rank: Any = 0) -> bytes:
    packed: bytes = msgpack.packb([at, list(events), rank])
    return packed


HISTORY = [
    # In the order in which vLLM's releases added fields; each is a prefix of what follows.
    (["BlockStored", [1, 2], None, [0] * 32, 16, None], None, None),
    (["BlockStored", [1, 2], None, [0] * 32, 16, None, "GPU"], "gpu", None),
    (["BlockStored", [1, 2], None, [0] * 32, 16, None, "GPU", "lora"], "gpu", None),
    (["BlockStored", [1, 2], None, [0] * 32, 16, None, "GPU", None, [None, None]], "gpu", None),
    (["BlockStored", [1, 2], None, [], 16, None, "CPU", None, None, 3, "sliding_window", 128], "cpu", "group3"),
    (["BlockStored", [1, 2], None, [], 16, None, "CPU", None, None, 3, "x", 1, "REMOTE"], "remote", "group3"),
    ({"type": "BlockStored", "block_hashes": [1, 2], "block_size": 16, "medium": "GPU", "group_idx": 0}, "gpu", "group0"),
    ({"type": "BlockStored", "block_hashes": [ONE, TWO], "block_size": 0, "medium": "STORAGE"}, "disk", None),
    ({"type": "BlockStored", "block_hashes": [1, 2], "medium": "CPU_PINNED", "future_field": {"a": [1]}}, "cpu", None),
    ({"event_id": 4, "event_type": "stored", "seq_hashes": [1, 2], "base_block_idx": 0, "parent_hash": None,
      "backend_id": "b", "medium": "nvme", "tenant_id": "t", "group_id": 1, "object_key": "k"}, "disk", "group1"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "medium", "group"), HISTORY)
def test_a_stored_event_of_any_release(told: Any, medium: str | None, group: str | None) -> None:
    found = one(told)
    assert (found.kind, found.hashes, found.medium, found.group) == (
        "stored",
        (ONE, TWO),
        medium,
        group,
    )


@pytest.mark.parametrize(
    ("told", "kind", "medium"),
    [
        (["BlockRemoved", [1]], "removed", None),
        (["BlockRemoved", [1], "GPU", 2], "removed", "gpu"),
        ({"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"}, "removed", "cpu"),
        ({"event_type": "removed", "seq_hashes": [1], "medium": "cpu"}, "removed", "cpu"),
        (["AllBlocksCleared"], "cleared", None),
        ({"type": "AllBlocksCleared"}, "cleared", None),
        ({"event_type": "cleared", "medium": "cpu"}, "cleared", "cpu"),
    ],
)
def test_the_other_kinds(told: Any, kind: str, medium: str | None) -> None:
    found = one(told)
    assert (found.kind, found.medium) == (kind, medium)
    assert found.hashes == ((ONE,) if kind == "removed" else ())


@pytest.mark.parametrize(
    ("signed", "unsigned"), [(-5, (1 << 64) - 5), (-(1 << 63), 1 << 63), (-1, (1 << 64) - 1)]
)
def test_a_signed_hash_is_the_same_bits(signed: int, unsigned: int) -> None:
    assert hash_bytes(signed) == hash_bytes(unsigned) == unsigned.to_bytes(8, "big")


def test_a_hash_of_bytes_is_known_by_its_last_eight(names: Any) -> None:
    digest = bytes(range(32))
    assert names.hash(hash_bytes(digest)) == names.hash(
        hash_bytes(int.from_bytes(digest[-8:], "big"))
    )
    assert names.hash(hash_bytes(digest)) == names.hash(hash_bytes(digest.hex()))


def test_hashes_that_are_text_differ_where_the_text_does(names: Any) -> None:
    assert names.hash(hash_bytes("a/long/key/0")) != names.hash(hash_bytes("b/long/key/0"))


@pytest.mark.parametrize("word", ["somewhere", "L3", ""])
def test_an_unknown_medium_is_not_guessed(word: str) -> None:
    assert medium_of(word) is None
    found = one({"type": "BlockRemoved", "block_hashes": [1], "medium": word})
    assert found.medium is None and found.facts.get("tier") == word


@pytest.mark.parametrize(
    "told",
    [
        None, 3, "BlockStored", [], {}, ["Other", [1]], {"type": "Other"}, {"type": ["BlockStored"]},
        ["BlockStored"], ["BlockStored", 5], ["BlockStored", [1 << 64]], ["BlockStored", [True]],
        ["BlockStored", [1.5]], ["BlockStored", [b""]], ["BlockStored", [b"x" * 600]], ["BlockStored", [None]],
        {"type": "BlockRemoved", "block_hashes": [1], "medium": 3},
        {"type": "BlockRemoved", "block_hashes": [1], "group_idx": [0]},
        {"event_id": -1, "data": {"type": "removed", "block_hashes": [1]}},
        {"event_id": 1, "data": {"type": "removed", "block_hashes": 1}},
        {"event_id": 1, "data": {"type": "stored", "blocks": [1]}},
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(told: Any) -> None:
    with pytest.raises(Reject):
        events_of(told)


def test_one_bad_event_leaves_the_others() -> None:
    data = pack(["BlockStored", [1]], ["BlockStored", [True]], ["BlockRemoved", [1]])
    batch = read_batch(data)
    assert [e.kind for _, e in batch.events] == ["stored", "removed"]
    ((offset, problem),) = batch.problems
    assert data[offset:].startswith(msgpack.packb(["BlockStored", [True]])) and "hash" in problem


def test_a_cut_batch_gives_what_is_before_the_cut() -> None:
    data = pack(["BlockStored", [1]], ["BlockRemoved", [1]])
    for cut in range(1, len(data)):
        batch = read_batch(data[:-cut])
        assert len(batch.events) <= 2 and (batch.problems or cut == 0)
        assert all(0 <= offset <= len(data) - cut for offset, _ in batch.problems)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "ends too early"),
        (b"\xc0", "not msgpack"),
        (b"\x91\x01", "a batch is an array"),
        (b"\x92\x01\xdd\xff\xff\xff\xff", "ends too early"),
        (b"\x92\x01\x91" + b"\x91" * 5000 + b"\x01", "nested too deeply"),
        (b"\x92\x01\x91\xdd\x7f\xff\xff\xff", "not msgpack"),
        (pack() + b"junk", "4 bytes behind"),
        (b'[1.0, [{"type": ', "not JSON"),
        (b"[" * 10000, "not JSON"),
        (b"{\xff}", "not UTF-8"),
    ],
)
def test_a_hostile_message_is_a_problem_with_an_offset(data: bytes, problem: str) -> None:
    batch = read_batch(data)
    assert not batch.events and len(batch.problems) == 1
    offset, said = batch.problems[0]
    assert problem in said and 0 <= offset <= len(data)


def test_a_batch_of_countless_events_is_cut() -> None:
    batch = read_batch(
        b"\x92\x01\xdd\xff\xff\xff\xff" + msgpack.packb(["AllBlocksCleared"]) * (MOST_EVENTS + 9)
    )
    assert len(batch.events) == MOST_EVENTS and batch.unread == 1
    batch = read_batch(b"\x92\x01\xdd\xff\xff\xff\xff" + b"\xc0" * 1_000_000)
    assert batch.unread <= 102


def test_json_in_place_of_msgpack() -> None:
    event = {"event_id": 3, "data": {"type": "removed", "block_hashes": [1]}, "window_size": 64}
    for text in (event, [event], [1.5, [event], 2]):
        batch = read_batch(json.dumps(text).encode())
        assert [(e.kind, e.group) for _, e in batch.events] == [("removed", "window64")]
        assert not batch.problems


def test_when_a_batch_was_published() -> None:
    assert batch_time(pack(at=12.5)) == 12.5 == read_batch(pack(at=12.5)).at
    assert batch_time(b"") is None and batch_time(b"\x92\xcb\0") is None
    assert batch_time(struct.pack(">B", 0x93) + b"\x01") is None


def stream_of(names: Any, *batches: tuple[int, bytes], as_received: bool = False) -> list[Event]:
    stream = KvStream(names, as_received=as_received)
    lines = [stream.begin(["tcp://x"])]
    for number, data in batches:
        lines += stream.batch("p", number, data)
    return [Event.of(i, line) for i, line in enumerate(lines, 1)]


def codes(events: list[Event]) -> list[str]:
    return [f.code for f in check(events).findings]


STORED, REMOVED = ["BlockStored", [1], None, [], 16, None, "GPU"], ["BlockRemoved", [1], "GPU"]


def test_the_same_event_twice_in_one_batch_is_no_double(names: Any) -> None:
    """A hash may be stored, go and be stored again within one step."""
    batch = pack(STORED, REMOVED, STORED, STORED)
    for as_received in (False, True):
        assert codes(stream_of(names, (0, batch), (1, batch), as_received=as_received)) == []


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("order", "found"),
    [
        ([0, 1, 2, 3], []),
        ([5, 6, 7], []),
        ([0, 1, 3], ["HKV901"]),
        ([0, 1, 1, 2], ["HKV901"]),
        ([0, 2, 1, 3], ["HKV901"]),
        ([0, 1, 2, 0, 1, 2], ["HKV901"]),
    ],
)
def test_as_received_a_disturbance_is_found(
    order: list[int], found: list[str], count: int, names: Any
) -> None:
    batches = [
        (n, pack(*(["BlockStored", [n * 10 + i], None, [], 16, None, "GPU"] for i in range(count))))
        for n in order
    ]
    assert codes(stream_of(names, *batches, as_received=True)) == found


def test_a_restart_clears_and_counts_on(names: Any) -> None:
    stream = KvStream(names)
    lines = [stream.begin(["tcp://x"]), *stream.batch("p", 0, pack(STORED)), stream.restart("p")]
    assert next(iter(stream.lines.rows()))[5] == 0
    lines += stream.batch("p", 0, pack(STORED))
    assert [line.get("wseq") for line in lines[1:]] == [0, 1, 2]
    assert codes([Event.of(i, line) for i, line in enumerate(lines, 1)]) == []


def test_the_account_follows_group_and_tier(names: Any) -> None:
    stream = KvStream(names)
    gpu = {"type": "BlockStored", "block_hashes": [1, 2], "medium": "GPU", "group_idx": 0}
    cpu = {"type": "BlockStored", "block_hashes": [1], "medium": "CPU", "group_idx": 0}
    gone = {"type": "BlockRemoved", "block_hashes": [2, 9], "medium": "GPU", "group_idx": 0}
    list(stream.batch("p", 0, pack(gpu, cpu, gone)))
    assert list(stream.lines.rows()) == [
        ("p", "group0", "cpu", 1, 0, 1, 0), ("p", "group0", "gpu", 2, 2, 1, 1),
    ]  # fmt: skip
