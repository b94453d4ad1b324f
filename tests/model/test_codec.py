"""The byte form of events: lossless, compact, the same for ever, and safe to read."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import JSON, events, mutated

from hkvtool.model import codec, codec_keys
from hkvtool.model.codec import CodecError, decode, encode, refuse_newer
from hkvtool.model.codec_keys import CODEC_VERSION, KEYS
from hkvtool.model.codec_values import RUN_LIMIT
from hkvtool.model.events import EVENTS

GOLDEN = Path(__file__).with_name("codec_v1.jsonl")
"""One event of each kind, and the bytes that stand for it in recordings that exist."""


def exactly(value: Any) -> str:
    """Text that tells 1, 1.0, True and "1" apart."""
    return json.dumps(value, sort_keys=True)


def same(data: dict[str, Any]) -> None:
    back = decode(encode(data))
    assert exactly(back) == exactly(data)


@given(events())
def test_any_event_comes_back(data: dict[str, Any]) -> None:
    same(data)


@given(mutated())
def test_what_is_no_event_comes_back_too(data: dict[str, Any]) -> None:
    # A list of integers is looked at from both ends only.
    kinds = {type(x) for v in data.values() if isinstance(v, list) for x in v}
    if kinds <= {int} or not kinds & {bool, float}:
        same(data)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=4))
def test_any_object_comes_back(data: dict[str, Any]) -> None:
    same(data)


SIZES = st.sampled_from([127, 128, 8063, 8064, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 61])
NEAR = st.builds(lambda size, by: max(0, size + by), SIZES, st.integers(-200, 200))
LISTS = st.one_of(
    st.lists(st.integers(0, 300), max_size=40),
    st.lists(NEAR, max_size=40),
    st.lists(st.integers(-(1 << 62), 1 << 62), max_size=10),
    st.builds(lambda a, n: list(range(a, a + n)), NEAR, st.integers(0, 3 * RUN_LIMIT)),
    st.builds(lambda a, d: [a + x for x in d], NEAR, st.lists(st.integers(0, 255), max_size=300)),
)


@given(LISTS)
def test_lists_of_every_width_come_back(blocks: list[int]) -> None:
    same({"ev": "alloc", "blocks": blocks})
    same({"ev": "resume", "blocks": {"g": blocks}, "x": blocks})


@given(events())
def test_bytes_do_not_depend_on_what_was_encoded_before(data: dict[str, Any]) -> None:
    codec._shapes.clear()
    first = encode(data)
    assert encode(data) == first
    other = dict(reversed(list(data.items())))
    assert decode(encode(other)) == data


def golden() -> list[tuple[dict[str, Any], str]]:
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [(row["event"], row["bytes"]) for row in rows]


def test_bytes_on_disk_never_change() -> None:
    assert {event["ev"] for event, _ in golden()} == set(EVENTS)
    for event, expected in golden():
        assert encode(event).hex() == expected
        assert exactly(decode(bytes.fromhex(expected))) == exactly(event)


def test_golden_uses_every_bit_of_the_first_version() -> None:
    used: dict[str, set[str]] = {}
    for event, _ in golden():
        used.setdefault(event["ev"], set()).update(event)
    assert used == {ev: {"ev", *keys.split()} for ev, keys in codec_keys._TABLES[1].items()}


def test_every_key_of_every_event_has_a_bit() -> None:
    lacking = {ev: sorted(set(spec.keys) - set(KEYS.get(ev, ()))) for ev, spec in EVENTS.items()}
    assert {ev: keys for ev, keys in lacking.items() if keys} == {}, (
        "append these keys to a table of a new version in hkvtool/model/codec_keys.py"
    )


def test_newer_form_is_refused_with_what_to_do() -> None:
    refuse_newer(CODEC_VERSION)
    with pytest.raises(CodecError, match=r"newer hkvtool.*upgrade"):
        refuse_newer(CODEC_VERSION + 1)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), {1: 2}, "\ud800", ["\udfff"], b"x", {1, 2}]
)
def test_what_is_not_json_is_refused(value: Any) -> None:
    for data in ({"ev": "alloc", "req": value}, {"ev": "alloc", "x": value}, {"ev": 1, "x": value}):
        with pytest.raises(CodecError):
            encode(data)


def test_values_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError, match="deep"):
        encode({"ev": "group", "layers": loop})


def read(payload: bytes) -> None:
    """Whatever the bytes: an event, or an error that names a byte of them."""
    try:
        data = decode(payload)
    except CodecError as e:
        assert e.offset is not None and 0 <= e.offset <= len(payload)
    else:
        assert isinstance(data, dict)
        json.dumps(data)


@given(events(), st.data())
def test_mutated_bytes_are_an_event_or_an_error(data: dict[str, Any], draw: st.DataObject) -> None:
    payload = bytearray(encode(data))
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(payload) - 1))
        payload[at] = draw.draw(st.integers(0, 255))
    read(bytes(payload[: draw.draw(st.integers(0, len(payload)))]))


@given(st.binary(max_size=200))
def test_random_bytes_are_an_event_or_an_error(payload: bytes) -> None:
    read(payload)


HOSTILE = [
    bytes((8, 8)) + bytes((0xD5, 0, 0x80, 8)) * 10_000,
    b"\0" + b"\xd7" * 100_000,
    b"\0\xdf\xff\xff\x03" + b"[" * 65_535,
    b"\0\xdf\xff\xff\x03" + b"9" * 65_535,
    b"\0\xde\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x08\x08\xd5\0\xff\xff\xff\xff\xff\x7f",
    b"\x08\x08\xe0\0\xff\xff\xff\xff\xff\x7f",
    b"\x08\x08\xdd\xff\xff\x03" + bytes((0xDD, 0xFF, 0x7F)) * 30_000,
    b"\x08\x08" + b"\xdd\x90\x4e" + bytes((0xD5, 0, 0x80, 8)) * 10_000,
]


@pytest.mark.parametrize("payload", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_take_little_memory(payload: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(payload)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_more_runs_than_a_record_may_have_are_written_otherwise() -> None:
    same({"ev": "resume", "req": "r", "at": 0, "blocks": {str(g): [7, 8, 9] for g in range(2000)}})


def test_short_records_are_short(cases: Any, read_events: Any) -> None:
    sizes, texts = [], []
    for case in cases.values():
        for event in read_events(case.bad):
            if event.problem is None:
                sizes.append(len(encode(event.data)))
                texts.append(len(json.dumps(dict(event.data), separators=(",", ":"))))
    assert sum(sizes) / len(sizes) <= 20
    assert sum(sizes) * 3 < sum(texts)


@pytest.mark.soak
def test_a_million_mutations() -> None:
    chance = random.Random(1)
    payloads = [bytes.fromhex(text) for _, text in golden()]
    for _ in range(1_000_000):
        payload = bytearray(chance.choice(payloads))
        for _ in range(chance.randint(1, 5)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        read(bytes(payload))
