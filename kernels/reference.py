"""Every operation in plain torch: what the device kernels must equal bit for bit.

Each works on a flat ``uint8`` buffer and on `Rows` within it, on any device. CPU replays run
these.
"""

from __future__ import annotations

import time

import torch

from hkvtool.kernels.rows import Rows
from hkvtool.kernels.stamps import BYTES, FREED, WORDS, check_word

_VIEW = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}

ODD = 0x1000193
"""Multiplier of the fingerprint's weights: the 32-bit FNV prime."""


def _pieces(buffer: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, list[torch.Tensor], int]:
    """The buffer as its widest words, the indices of each segment's, and their bytes."""
    width = rows.word
    if buffer.numel() % width or buffer.data_ptr() % width:
        width = 1
    words = buffer.view(_VIEW[width])
    found = []
    for s, length in enumerate(rows.lengths):
        along = torch.arange(length // width, dtype=torch.int64, device=buffer.device)
        found.append((rows.starts[:, s, None].to(buffer.device) // width) + along)
    return words, found, width


def gather(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The rows' bytes, packed: ``uint8[n, row_bytes]``."""
    if not len(rows):
        return torch.empty((0, rows.row_bytes), dtype=torch.uint8, device=buffer.device)
    words, pieces, _ = _pieces(buffer, rows)
    parts = [words[index.reshape(-1)].view(len(rows), -1) for index in pieces]
    return torch.cat(parts, dim=1).contiguous().view(torch.uint8)


def scatter(buffer: torch.Tensor, rows: Rows, packed: torch.Tensor) -> None:
    """Lay packed rows ``uint8[n, row_bytes]`` down where the rows lie."""
    if not len(rows):
        return
    words, pieces, width = _pieces(buffer, rows)
    values = packed.to(buffer.device).contiguous().view(_VIEW[width])
    at = 0
    for index in pieces:
        count = index.shape[1]
        words[index.reshape(-1)] = values[:, at : at + count].reshape(-1)
        at += count


def tiled(stamps: torch.Tensor, row_bytes: int) -> torch.Tensor:
    """Whole rows of stamps ``int64[n, 4]``: ``uint8[n, row_bytes]``."""
    bytes_ = stamps.contiguous().view(torch.uint8).view(-1, BYTES)
    return bytes_.repeat(1, -(-row_bytes // BYTES))[:, :row_bytes].contiguous()


def stamp(buffer: torch.Tensor, rows: Rows, stamps: torch.Tensor) -> None:
    """Write each row's stamp over all of it."""
    scatter(buffer, rows, tiled(stamps.to(buffer.device), rows.row_bytes))


def heads(packed: torch.Tensor) -> torch.Tensor:
    """The first words of packed rows, ``int64[n, 4]``; rows shorter than a stamp end in zeros."""
    count, size = packed.shape
    if size < BYTES:
        wide = torch.zeros((count, BYTES), dtype=torch.uint8, device=packed.device)
        wide[:, :size] = packed
        packed = wide
    return packed[:, :BYTES].reshape(-1).clone().view(torch.int64).view(count, WORDS)


def verify(
    buffer: torch.Tensor, rows: Rows, expected: torch.Tensor, fields: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows do not hold what is due, and what they hold.

    ``expected`` ``int64[n, 4]``; ``fields`` ``int64[n, 4]`` masks the words that matter (0 where
    a generation or version is of no account). A row is wrong too where its bytes are not one
    stamp from end to end. Returns ``bool[n]`` and the first words found, ``int64[n, 4]``; of a
    row that is torn behind its first words the check word is cleared.
    """
    packed = gather(buffer, rows)
    found = heads(packed)
    device = buffer.device
    whole = (packed == tiled(found, rows.row_bytes)).all(dim=1)
    if rows.row_bytes >= BYTES:
        whole &= found[:, 3] == check_word(found)
    due = (found ^ expected.to(device)) & fields.to(device)
    wrong = (due != 0).any(dim=1) | ~whole
    torn = ~(packed == tiled(found, rows.row_bytes)).all(dim=1)
    told = found.clone()
    told[torn, 3] = 0
    return wrong, told


def first_wrong(wrong: torch.Tensor) -> int:
    """The first wrong row, -1 where there is none."""
    at = wrong.nonzero()
    return int(at[0]) if len(at) else -1


def fingerprint(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """A checksum of each row, ``int64[n]``, the same wherever and in whatever layout it lies: its
    length and its 64-bit words, each by an odd weight of its own."""
    packed = gather(buffer, rows).to(torch.int64)
    along = torch.arange(rows.row_bytes, dtype=torch.int64, device=buffer.device)
    parts = (packed << (along % 8) * 8) * ((along // 8 * 2 + 1) * ODD)
    return parts.sum(dim=1) + rows.row_bytes * ODD


def poison(buffer: torch.Tensor, rows: Rows, *, lifted: bool = False) -> None:
    """Mark rows as freed: they still say whose they were. Done twice it is done once; `lifted`
    takes the mark back. What is no stamp is left as it is.
    """
    if rows.row_bytes < BYTES or not len(rows):
        return
    packed = gather(buffer, rows)
    found = heads(packed)
    mark = FREED if lifted else 0
    due = found[:, 3] == check_word(found) ^ mark
    found[:, 3] = torch.where(due, found[:, 3] ^ FREED, found[:, 3])
    whole = tiled(found, rows.row_bytes)
    scatter(buffer, rows, torch.where(due[:, None], whole, packed))


def zero(buffer: torch.Tensor, rows: Rows) -> None:
    """Clear rows."""
    words, pieces, _ = _pieces(buffer, rows)
    for index in pieces:
        words[index.reshape(-1)] = 0


def copy_blocks(
    buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor, size: int
) -> None:
    """Copy `size` bytes from each offset of `source` to the one beside it in `target`; as if all
    were read first."""
    along = torch.arange(size, dtype=torch.int64, device=buffer.device)
    taken = buffer[(source.to(buffer.device)[:, None] + along).reshape(-1)]
    buffer[(target.to(buffer.device)[:, None] + along).reshape(-1)] = taken


def swap(
    source: torch.Tensor, target: torch.Tensor, here: torch.Tensor, there: torch.Tensor, size: int
) -> None:
    """Copy `size` bytes from each offset of one tier's buffer to those of another's."""
    along = torch.arange(size, dtype=torch.int64)
    taken = source[(here[:, None] + along).reshape(-1).to(source.device)]
    target[(there[:, None] + along).reshape(-1).to(target.device)] = taken.to(target.device)


def spin(seconds: float, device: str = "cpu") -> None:
    """Hold the lane up for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        time.sleep(0)


FP8_MAX = 448.0


def fp8_codes(values: torch.Tensor) -> torch.Tensor:
    """Values in [-448, 448] as e4m3 codes ``uint8``, to nearest, ties to even; all in integers,
    so that every device gives the same."""
    bits = values.to(torch.float32).contiguous().view(torch.int32).to(torch.int64)
    sign = bits >> 31 & 1
    magnitude = bits & 0x7FFFFFFF
    exponent, mantissa = magnitude >> 23, magnitude & 0x7FFFFF
    # Below 2**-6 a code counts in steps of 2**-9: the mantissa moves right before it is rounded.
    shift = 20 + (121 - exponent).clamp(min=0, max=24)
    full = torch.where(exponent > 0, mantissa | 1 << 23, mantissa)
    low = exponent < 121
    kept = torch.where(low, full, mantissa) >> shift
    rest = torch.where(low, full, mantissa) - (kept << shift)
    half = torch.ones_like(shift) << (shift - 1)
    up = (rest > half) | ((rest == half) & (kept & 1 == 1))
    rounded = kept + up.to(torch.int64)
    code = torch.where(low, rounded, ((exponent - 120) << 3) + rounded)
    return (sign << 7 | code.clamp(max=0x7E)).to(torch.uint8)


def fp8_values(codes: torch.Tensor) -> torch.Tensor:
    """What e4m3 codes stand for, ``float32``."""
    c = codes.to(torch.int32)
    exponent, mantissa = c >> 3 & 15, (c & 7).to(torch.float32)
    normal = (1 + mantissa / 8) * power(exponent - 7)
    value = torch.where(exponent > 0, normal, mantissa * 2.0**-9)
    return torch.where(c >> 7 == 1, -value, value)


def compress(values: torch.Tensor, block: int, scale: str = "fp32") -> torch.Tensor:
    """Rows ``float32[n, d]`` as fp8 codes with a scale for each `block` of them, packed
    ``uint8[n, d + scales]``: codes first, then the scales.

    `scale` is ``fp32`` (DeepSeek-V3.2, indexer keys) or ``ue8m0`` (DeepSeek-V4: a power of two,
    one byte, its exponent).
    """
    n, d = values.shape
    parts = values.to(torch.float32).view(n, d // block, block)
    most = parts.abs().amax(dim=2).clamp(min=1e-4)
    if scale == "ue8m0":
        exponent = ceil_exponent(most / FP8_MAX)
        unit = power(exponent)
        tail = (exponent + 127).to(torch.uint8)
    else:
        unit = most / FP8_MAX
        tail = unit.reshape(-1).clone().view(torch.uint8).view(n, d // block * 4)
    codes = fp8_codes((parts / unit[:, :, None]).clamp(-FP8_MAX, FP8_MAX)).view(n, d)
    return torch.cat((codes, tail), dim=1)


def decompress(packed: torch.Tensor, d: int, block: int, scale: str = "fp32") -> torch.Tensor:
    """The values of compressed rows, ``float32[n, d]``."""
    n = packed.shape[0]
    tail = packed[:, d:].reshape(-1).clone()
    if scale == "ue8m0":
        unit = power(tail.view(n, d // block).to(torch.int32) - 127)
    else:
        unit = tail.view(torch.float32).view(n, d // block)
    codes = fp8_values(packed[:, :d]).view(n, d // block, block)
    return (codes * unit[:, :, None]).view(n, d)


def power(exponent: torch.Tensor) -> torch.Tensor:
    """Two to the power of each ``int32``, -126 to 127, ``float32``: as bits, exact everywhere."""
    return (exponent + 127 << 23).view(torch.float32)


def ceil_exponent(ratio: torch.Tensor) -> torch.Tensor:
    """The least e with 2**e >= ratio, of positive normal numbers."""
    bits = ratio.contiguous().view(torch.int32)
    return (bits >> 23) - 127 + (bits & 0x7FFFFF != 0).to(torch.int32)


def index_rows(keys: torch.Tensor) -> torch.Tensor:
    """Indexer rows of keys ``float32[n, 128]``: 128 codes and an fp32 scale, packed."""
    return compress(keys, keys.shape[1])


def select(
    buffer: torch.Tensor, rows: Rows, query: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` entries whose indexer keys meet a query ``float32[d]`` best, best first; of
    equals the earlier. Returns entries and scores."""
    keys = decompress(gather(buffer, rows), len(query), len(query))
    # In float64 the sum is the same in whatever order it is taken, to well below a key's step.
    scores = (keys.to(torch.float64) * query.to(keys.device).to(torch.float64)).sum(dim=1)
    order = torch.sort(scores, descending=True, stable=True)
    count = min(count, len(rows))
    return order.indices[:count], order.values[:count]
