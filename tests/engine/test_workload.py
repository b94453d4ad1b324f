"""Reading request traces: what a record means, and what is said of one that is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.engine.workload import OWN, Request, read_workload
from hkvtool.model.errors import HkvError
from hkvtool.model.shipped import shipped


def write(path: Path, *records: Any) -> Path:
    text = "".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def record(ids: list[Any], length: int, **more: Any) -> dict[str, Any]:
    return {"timestamp": 0, "input_length": length, "output_length": 5, "hash_ids": ids} | more


@pytest.mark.parametrize("name", ["w.jsonl", "w.jsonl.gz"])
def test_plain_and_zipped_traces_read_alike(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, record([7, 8], 600, timestamp=1.5), record([7, 9], 1024))
    first, second = read_workload(path)
    assert (first.id, first.arrival, first.prompt, first.output) == ("r0", 1_500_000, 600, 5)
    assert first.nodes[0] == second.nodes[0]
    assert first.nodes[1] != second.nodes[1]
    assert first.own != second.own >= OWN


def test_a_record_may_state_its_block_size(tmp_path: Path) -> None:
    (only,) = read_workload(write(tmp_path / "w.jsonl", record(["a", "b", "c"], 40, block_size=16)))
    assert (only.unit, len(only.nodes)) == (16, 3)


def test_ids_are_chained_by_what_came_before(tmp_path: Path) -> None:
    """The same id behind another prefix is other content."""
    one, two = read_workload(
        write(tmp_path / "w.jsonl", record([1, 5], 1024), record([2, 5], 1024))
    )
    assert one.nodes[1] != two.nodes[1]


def test_keys_know_the_prefix_the_salt_and_whose_tokens_they_are() -> None:
    a = Request("a", 0, 24, 20, (3, 4, 5), 8, OWN)
    b = Request("b", 0, 24, 20, (3, 4, 6), 8, OWN + 1)
    salted = Request("c", 0, 24, 20, (3, 4, 5), 8, OWN, salt=1)
    assert a.keys(range(4), 8) == [a.key(end) for end in (8, 16, 24, 32)]
    assert a.key(16) == b.key(16) and a.key(24) != b.key(24)
    assert a.key(32) != b.key(32), "what they generate is their own"
    assert not set(a.keys(range(4), 8)) & set(salted.keys(range(4), 8))
    assert len({a.key(end) for end in range(1, 40)}) == 39, "a position is part of a key"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "not JSON"),
        ("[1]\n", "not a JSON object"),
        (record([1], 0), "`input_length` is 0"),
        (record([1], True), "`input_length` is True"),
        (record([1, 2], 512), "2 hash_ids for 512 tokens"),
        (record("ab", 600), "`hash_ids` is not a list"),
        (record([1.5, 2], 600), "`hash_ids` is not a list"),
        (record([1], 100, output_length=-1), "`output_length` is -1"),
        (record([1], 100, block_size=0), "`block_size` is 0"),
        (record([1], 100, timestamp=-4), "`timestamp` is -4"),
        (record([1], 100, timestamp="now"), "`timestamp` is 'now'"),
        (record(list(range(8193)), 8193 * 512), "a request of 4,194,821 tokens"),
    ],
)
def test_what_is_no_request_is_told_with_its_line(tmp_path: Path, bad: Any, says: str) -> None:
    path = write(tmp_path / "w.jsonl", record([1], 100), bad)
    with pytest.raises(HkvError, match=says) as error:
        list(read_workload(path))
    assert error.value.where == f"{path}:2"
    assert len(list(read_workload(path, 1))) == 1, "what comes before can be run"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HkvError, match="no such workload"):
        list(read_workload(tmp_path / "none.jsonl"))
    cut = write(tmp_path / "w.jsonl.gz", *[record([1], 100)] * 50)
    cut.write_bytes(cut.read_bytes()[:-12])
    with pytest.raises(HkvError, match="cannot be read"):
        list(read_workload(cut))
    plain = write(tmp_path / "plain.jsonl", record([1], 100)).rename(tmp_path / "plain.gz")
    with pytest.raises(HkvError, match="cannot be read"):
        list(read_workload(plain))


def test_the_conversation_trace_ships_whole() -> None:
    path = Path(str(shipped("workloads", "conversation_trace.jsonl.gz")))
    requests = list(read_workload(path))
    assert len(requests) == 12_031
    assert sum(len(request.nodes) for request in requests) == 288_500
    assert len({node for request in requests for node in request.nodes}) == 182_790
    assert sum(request.prompt for request in requests[6015:]) == 67_915_607
    assert (path.parent / "LICENSE-conversation_trace.txt").is_file()
