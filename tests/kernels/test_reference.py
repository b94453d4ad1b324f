"""The references: layouts as rows, stamps that say whose bytes they are, fp8 to the code."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.kernels import Page, ordered_page, page_of, plain_page, read, split_page
from hkvtool.kernels import reference as k
from hkvtool.kernels.rows import Rows
from hkvtool.kernels.stamps import NEVER, pack, told

GUARD = 64

LAYOUTS: dict[str, Page] = {
    "V3.2 fp8 MLA, 656 B": plain_page(64, 656),
    "V4, 584 B, pages of 576": split_page(64, 584, 8, stride=37440, page_bytes=37440),
    "V4 C128, 2 rows": split_page(2, 584, 8, stride=1728, page_bytes=1728),
    "indexer, 132 B": split_page(64, 132, 4, stride=8640),
    "compressor state, fp32": plain_page(4, 8192, stride=32832),
    "K/V packed": ordered_page(16, 4096, ["block", "token", "head", "kv", "dim"], 4),
    "K/V split, token first": ordered_page(16, 4096, ["block", "kv", "token", "head", "dim"], 4),
    "K/V split, head first": ordered_page(16, 4096, ["block", "kv", "head", "token", "dim"], 4),
    "K/V packed, head first": ordered_page(16, 4096, ["block", "head", "token", "kv", "dim"], 4),
    "K/V planes over all blocks": ordered_page(
        16, 1024, ["kv", "block", "token", "head", "dim"], 8
    ),
    "recurrent state": plain_page(1, 6208, stride=8192),
}


def _rows(page: Page, blocks: list[int], entries: list[int]) -> Rows:
    pairs = [(b, e) for b in blocks for e in entries]
    return page.at(torch.tensor([b for b, _ in pairs]), torch.tensor([e for _, e in pairs]))


def _memory(rows: Rows) -> torch.Tensor:
    """A buffer that just holds the rows, between guard bytes."""
    size = int((rows.starts + torch.tensor(rows.lengths)).max()) if len(rows) else 0
    return torch.full((GUARD + size + GUARD,), NEVER, dtype=torch.uint8)[GUARD:]


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_a_layout_do_not_meet(name: str) -> None:
    page = LAYOUTS[name]
    rows = _rows(page, [0, 1, 3], list(range(page.rows)))
    seen = torch.zeros(int((rows.starts + torch.tensor(rows.lengths)).max()), dtype=torch.int32)
    for row in rows.starts.tolist():
        for first, length in zip(row, rows.lengths, strict=True):
            seen[first : first + length] += 1
    assert int(seen.max()) == 1
    assert int(seen.sum()) == len(rows) * page.row_bytes


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_stamped_is_found_and_nothing_else_is_touched(name: str) -> None:
    page = LAYOUTS[name]
    entries = list(range(0, page.rows, 2))
    rows = _rows(page, [1, 2], entries)
    buffer = _memory(_rows(page, [0, 1, 2, 3], list(range(page.rows))))
    stamps = pack(torch.arange(len(rows)) + 7, 3, torch.arange(len(rows)), 5, 2)
    k.stamp(buffer, rows, stamps)
    wrong, _ = k.verify(buffer, rows, stamps, torch.full((len(rows), 4), -1))
    assert not wrong.any()
    k.zero(buffer, rows)
    assert int((buffer == 0).sum()) == len(rows) * page.row_bytes


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("where", ["first", "last"])
def test_one_wrong_byte_is_seen(name: str, where: str) -> None:
    page = LAYOUTS[name]
    rows = _rows(page, [1], list(range(page.rows)))
    buffer = _memory(rows)
    stamps = pack(9, 1, torch.arange(len(rows)), 1, 1)
    k.stamp(buffer, rows, stamps)
    starts, lengths = rows.starts[-1].tolist(), rows.lengths
    buffer[starts[0] if where == "first" else starts[-1] + lengths[-1] - 1] ^= 1
    wrong, _ = k.verify(buffer, rows, stamps, torch.tensor([[-1, -1, 0, 0]]).expand(len(rows), 4))
    assert k.first_wrong(wrong) == len(rows) - 1
    assert int(wrong.sum()) == 1


def test_a_wrong_row_says_whose_it_is() -> None:
    page = plain_page(4, 64)
    rows = _rows(page, [0], [0, 1, 2, 3])
    buffer = _memory(rows)
    k.stamp(buffer, rows, pack(11, 2, torch.arange(4) + 40, 6, 3))
    due = pack(12, 2, torch.arange(4) + 40, 0, 0)
    wrong, found = k.verify(buffer, rows, due, torch.tensor([[-1, -1, 0, 0]]).expand(4, 4))
    assert wrong.all()
    assert told(found[1]) == {
        "state": "stamped", "sequence": 11, "group": 2, "token": 41, "generation": 6, "version": 3,
    }  # fmt: skip


def test_what_is_no_stamp_is_told() -> None:
    rows = _rows(plain_page(3, 64), [0], [0, 1, 2])
    buffer = _memory(rows)
    k.zero(buffer, Rows(rows.starts[1:2], rows.lengths))
    buffer[128:192] = torch.arange(64, dtype=torch.uint8)
    found = k.heads(k.gather(buffer, rows))
    assert [state for _, state in read(found)] == ["never written", "zero", "torn"]


def test_poison_says_whose_it_was_and_can_be_lifted() -> None:
    rows = _rows(split_page(8, 132, 4), [0], list(range(8)))
    buffer = _memory(rows)
    stamps = pack(5, 1, torch.arange(8), 1, 1)
    k.stamp(buffer, rows, stamps)
    before = buffer.clone()
    k.poison(buffer, rows)
    once = buffer.clone()
    k.poison(buffer, rows)
    assert torch.equal(buffer, once)
    wrong, found = k.verify(buffer, rows, stamps, torch.full((8, 4), -1))
    assert wrong.all()
    assert told(found[3])["state"] == "freed"
    assert told(found[3])["token"] == 3
    k.poison(buffer, rows, lifted=True)
    assert torch.equal(buffer, before)


def test_a_fingerprint_is_of_the_content_and_not_of_the_layout() -> None:
    packed, split = (
        plain_page(4, 1024),
        ordered_page(4, 1024, ["block", "kv", "head", "token", "dim"], 1),
    )
    stamps = pack(3, 1, torch.arange(4), 1, 1)
    sums = []
    for page in (packed, split):
        rows = _rows(page, [1], [0, 1, 2, 3])
        buffer = _memory(rows)
        k.stamp(buffer, rows, stamps)
        sums.append(k.fingerprint(buffer, rows))
    assert torch.equal(*sums)
    assert len(set(sums[0].tolist())) == 4


def test_kernel_blocks_step_by_their_own_stride() -> None:
    whole = plain_page(64, 1024, stride=73728)
    part = Page(plain_page(16, 1024).starts, (1024,), 16384, 73728, 0, 4)
    right = whole.at(torch.tensor([2]), torch.tensor([17])).starts
    believed = part.at(torch.tensor([2]), torch.tensor([17])).starts
    assert int(right) == 2 * 73728 + 17 * 1024
    assert int(believed) == (2 * 4 + 1) * 73728 + 1024


def test_a_layout_of_a_trace_makes_its_page() -> None:
    page = page_of({"row_bytes": 584, "scale_bytes": 8, "page_bytes": 37440}, 64, 10, 584)
    assert page.lengths == (576, 8)
    assert page.stride == 37440
    page = page_of({"order": "block,kv,token,head,dim", "page_bytes": 65536}, 16, 10, 4096)
    assert page.lengths == (2048, 2048)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=200))
def test_fp8_codes_are_torchs(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float32).clamp(-448, 448)
    assert torch.equal(k.fp8_codes(x), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_every_fp8_code_has_its_value() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(torch.float8_e4m3fn).to(torch.float32)
    real = ~values.isnan()
    assert torch.equal(k.fp8_values(codes)[real], values[real])


@settings(max_examples=20)
@given(
    st.integers(0, 5), st.sampled_from([(512, 128, "fp32"), (448, 64, "ue8m0")]), st.integers(0, 99)
)
def test_compressed_rows_come_back_to_within_a_step(
    n: int, shape: tuple[int, int, str], seed: int
) -> None:
    d, block, scale = shape
    values = torch.randn((n, d), generator=torch.Generator().manual_seed(seed)) * 3
    packed = k.compress(values, block, scale)
    assert packed.shape == (n, d + d // block * (4 if scale == "fp32" else 1))
    back = k.decompress(packed, d, block, scale)
    most = (
        values.view(n, d // block, block)
        .abs()
        .amax(dim=2, keepdim=True)
        .expand(-1, -1, block)
        .reshape(n, d)
    )
    assert ((back - values).abs() <= most / 14).all()


def test_select_finds_the_keys_that_meet_the_query() -> None:
    keys = torch.eye(8, 128)
    rows = _rows(split_page(8, 132, 4), [0], list(range(8)))
    buffer = _memory(rows)
    k.scatter(buffer, rows, k.index_rows(keys))
    query = torch.zeros(128)
    query[5], query[2] = 2.0, 1.0
    entries, scores = k.select(buffer, rows, query, 3)
    assert entries.tolist()[:2] == [5, 2]
    assert scores[0] > scores[1] > scores[2]
    assert len(k.select(buffer, rows, query, 99)[0]) == 8


def test_blocks_are_copied_as_if_all_were_read_first() -> None:
    buffer = torch.arange(12, dtype=torch.uint8)
    k.copy_blocks(buffer, torch.tensor([0, 4]), torch.tensor([4, 0]), 4)
    assert buffer.tolist() == [4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11]


def test_swap_moves_between_tiers() -> None:
    near, far = torch.arange(8, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)
    k.swap(near, far, torch.tensor([2]), torch.tensor([5]), 3)
    assert far.tolist() == [0, 0, 0, 0, 0, 2, 3, 4]
