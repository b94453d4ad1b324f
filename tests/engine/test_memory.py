"""The bytes as a witness: what a read finds is judged by the request's own tokens alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hkvtool.engine.memory import GARBLE, Memory
from hkvtool.model.errors import HkvError

from .tiny import COMPRESSING, RECURRENT, request

A, B = request(0, [0, 1, 2, 3]), request(1, [0, 1, 5, 6])
BY = COMPRESSING.by_name


@pytest.fixture
def memory() -> Memory:
    memory = Memory(COMPRESSING)
    memory.add("gpu", 20)
    return memory


def write(memory: Memory, name: str, blocks: list[int], start: int, end: int) -> None:
    memory.write(BY[name], A, blocks, start // BY[name].block_tokens, start, end, [(1, 1)] * 9)


def read(memory: Memory, name: str, blocks: list[int], start: int, end: int, by: object = A) -> int:
    first = start // BY[name].block_tokens
    memory.read(BY[name], by, blocks, first, start, end, 7)  # type: ignore[arg-type]
    return memory.settle()


def test_what_was_written_reads_back_for_whoever_shares_it(memory: Memory) -> None:
    write(memory, "c4", [3, 9], 0, 32)
    assert read(memory, "c4", [3, 9], 0, 32) == 0
    assert read(memory, "c4", [3], 0, 16, B) == 0
    assert read(memory, "c4", [3, 9], 0, 32, B) == 1, "from token 16 on they are two sequences"
    (wrong,) = memory.mismatches
    assert (wrong.req, wrong.step, wrong.group, wrong.block, wrong.row) == ("r1", 7, "c4", 9, 0)
    assert wrong.expected["content"] == 5 and wrong.found["content"] == 2
    assert wrong.found["token"] == 19 and wrong.found["version"] == 1


def test_unwritten_and_foreign_rows_are_told_apart(memory: Memory) -> None:
    assert read(memory, "swa", [4], 0, 8) == 1
    assert memory.mismatches[-1].found["group"] == "nothing"
    write(memory, "c4.state", [4], 0, 4)
    assert read(memory, "swa", [4], 0, 4) == 1, "tables overlay the same pages"
    assert memory.mismatches[-1].found["group"] == "c4.state"


def test_a_table_row_out_of_place_is_seen(memory: Memory) -> None:
    write(memory, "c4", [3, 9], 0, 32)
    assert read(memory, "c4", [9, 3], 0, 32) == 1


def test_groups_of_a_table_have_rows_of_their_own(memory: Memory) -> None:
    for name in ("c4", "c16", "idx"):
        write(memory, name, [3], 0, 16)
    assert sum(read(memory, name, [3], 0, 16) for name in ("c4", "c16", "idx")) == 0
    memory.read_versions(BY["idx"], BY["c4"], A, [3], 4, 7)
    assert memory.settle() == 0
    memory.write(BY["c4"], A, [3], 0, 12, 16, [(2, 1)])
    memory.read_versions(BY["idx"], BY["c4"], A, [3], 4, 7)
    assert memory.settle() == 1
    assert memory.mismatches[-1].row == 3


def test_moves_and_copies_carry_the_stamps(memory: Memory, tmp_path: Path) -> None:
    memory.add("cpu", 4)
    memory.add("disk", 4, tmp_path / "pages")
    write(memory, "c4", [3, 9], 0, 32)
    memory.move(BY["c4"], "gpu", "cpu", [3, 9], [0, 1])
    memory.move(BY["c4"], "cpu", "disk", [0, 1], [3, 2])
    memory.zero([3, 9])
    assert read(memory, "c4", [3, 9], 0, 32) == 1
    memory.move(BY["c4"], "disk", "gpu", [3, 2], [5, 6])
    assert read(memory, "c4", [5, 6], 0, 32) == 0
    assert (tmp_path / "pages").stat().st_size == 4 * COMPRESSING.page_rows() * 16
    memory.copy(5, 11)
    assert read(memory, "c4", [11, 6], 0, 32) == 0
    assert memory.fingerprint("gpu", BY["c4"], [5]) == memory.fingerprint("disk", BY["c4"], [3])
    memory.garble("gpu", BY["c4"], [11], GARBLE)
    assert memory.fingerprint("gpu", BY["c4"], [5]) != memory.fingerprint("gpu", BY["c4"], [11])
    assert read(memory, "c4", [11, 6], 0, 32) == 1


def test_a_recurrent_state_is_of_one_position() -> None:
    memory = Memory(RECURRENT)
    memory.add("gpu", 8)
    state = RECURRENT.by_name["gdn0"]
    memory.write(state, A, [2], 1, 8, 13, [(1, 1)])
    memory.read(state, A, [2], 1, 12, 13, 0)
    assert memory.settle() == 0
    memory.read(state, A, [2], 1, 13, 14, 0)
    assert memory.settle() == 1


def test_a_disk_tier_that_does_not_fit_is_told(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(HkvError, match="cannot be had"):
        memory.add("disk", 1 << 50, tmp_path / "pages")


def test_all_layers_are_kept_apart(tmp_path: Path) -> None:
    layers = 3
    groups = tuple(replace(group, layers=layers) for group in COMPRESSING.groups)
    memory = Memory(replace(COMPRESSING, groups=groups), all_layers=True)
    memory.add("gpu", 20)
    memory.add("disk", 4, tmp_path / "pages")
    write(memory, "c4", [3, 9], 0, 32)
    write(memory, "idx", [3, 9], 0, 32)
    assert read(memory, "c4", [3, 9], 0, 32) == read(memory, "idx", [3, 9], 0, 32) == 0
    assert memory.rows_read == 2 * 8 * layers
    memory.move(BY["c4"], "gpu", "disk", [3, 9], [1, 2])
    memory.move(BY["c4"], "disk", "gpu", [1, 2], [5, 6])
    assert read(memory, "c4", [5, 6], 0, 32) == 0
    # One row of the last layer, as a kernel with a wrong layer stride would leave it.
    rows, at = memory.pages["gpu"].rows, memory.offset["c4"] + (layers - 1) * BY["c4"].rows
    rows[5, at] = rows[5, at - BY["c4"].rows]
    assert read(memory, "c4", [5, 6], 0, 32) == 1
    wrong = memory.mismatches[-1]
    assert (wrong.block, wrong.row) == (5, 0)
    assert (wrong.expected["layer"], wrong.found["layer"]) == (layers - 1, layers - 2)
