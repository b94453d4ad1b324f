"""The Triton sources: one program a stretch of a row, in units of the widest word that every
segment of the rows begins and ends on.

What each argument is, `hkvtool.kernels.triton_kernels` says where it launches them.
"""

import triton
import triton.language as tl

_M0 = tl.constexpr(-7046029254386353131)
_M1 = tl.constexpr(-4658895280553007687)
_M2 = tl.constexpr(-7723592293110705685)


@triton.jit
def _checked(w0, w1, w2):
    mixed = (w0 * _M0) ^ (w1 * _M1) ^ (w2 * _M2)
    return mixed ^ ((mixed >> 29) & ((1 << 35) - 1))


@triton.jit
def _stamp(words, starts, stamps, segments, length, at, seg, W: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    along = tl.program_id(1) * N + tl.arange(0, N)
    mask = along < length
    first = tl.load(starts + row * segments + seg) // W
    # Byte position in the row -> which of the four words, and how far into it.
    byte = at + along.to(tl.int64) * W
    word = tl.load(stamps + row * 4 + (byte // 8) % 4, mask=mask, other=0)
    value = word >> ((byte % 8) * 8)
    tl.store(words + first + along, value.to(words.dtype.element_ty), mask=mask)


@triton.jit
def _gather(
    words, starts, packed, segments, length, at, seg, total, W: tl.constexpr, N: tl.constexpr
):
    row = tl.program_id(0)
    along = tl.program_id(1) * N + tl.arange(0, N)
    mask = along < length
    first = tl.load(starts + row * segments + seg) // W
    value = tl.load(words + first + along, mask=mask, other=0)
    tl.store(packed + row.to(tl.int64) * total + at + along, value, mask=mask)


@triton.jit
def _scatter(
    words, starts, packed, segments, length, at, seg, total, W: tl.constexpr, N: tl.constexpr
):
    row = tl.program_id(0)
    along = tl.program_id(1) * N + tl.arange(0, N)
    mask = along < length
    first = tl.load(starts + row * segments + seg) // W
    value = tl.load(packed + row.to(tl.int64) * total + at + along, mask=mask, other=0)
    tl.store(words + first + along, value, mask=mask)


@triton.jit
def _zero(words, starts, segments, length, seg, W: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    along = tl.program_id(1) * N + tl.arange(0, N)
    first = tl.load(starts + row * segments + seg) // W
    none = tl.zeros((N,), dtype=words.dtype.element_ty)
    tl.store(words + first + along, none, mask=along < length)


@triton.jit
def _whole(packed, wrong, found, expected, fields, total, N: tl.constexpr):
    """One row: is it one stamp from end to end, and the one that is due?"""
    row = tl.program_id(0).to(tl.int64)
    base = packed + row * total
    torn = tl.zeros((N,), dtype=tl.int32)
    for first in range(0, total, N):
        along = first + tl.arange(0, N)
        mask = along < total
        here = tl.load(base + along, mask=mask, other=0)
        head = tl.load(base + along % 32, mask=mask, other=0)
        torn += (here != head).to(tl.int32)
    is_torn = tl.sum(torn, axis=0) > 0
    w0 = tl.load(found + row * 4)
    w1 = tl.load(found + row * 4 + 1)
    w2 = tl.load(found + row * 4 + 2)
    w3 = tl.load(found + row * 4 + 3)
    four = tl.arange(0, 4)
    have = tl.load(found + row * 4 + four)
    due = tl.load(expected + row * 4 + four)
    care = tl.load(fields + row * 4 + four)
    other = tl.sum((((have ^ due) & care) != 0).to(tl.int32), axis=0) > 0
    bad = other | is_torn | ((w3 != _checked(w0, w1, w2)) & (total >= 32))
    tl.store(wrong + row, bad.to(tl.int8))
    tl.store(found + row * 4 + 3, tl.where(is_torn, tl.zeros_like(w3), w3))


@triton.jit
def _sum(packed, sums, total, ODD_: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((N,), dtype=tl.int64)
    for first in range(0, total, N):
        along = (first + tl.arange(0, N)).to(tl.int64)
        mask = along < total
        byte = tl.load(packed + row * total + along, mask=mask, other=0).to(tl.int64)
        weight = (along * 2 + 1) * ODD_
        acc += tl.where(mask, (byte + 1) * weight, tl.zeros_like(weight))
    tl.store(sums + row, tl.sum(acc, axis=0))


@triton.jit
def _mark(stamps, marked, FLIP: tl.constexpr, LIFTED: tl.constexpr):
    row = tl.program_id(0)
    w0 = tl.load(stamps + row * 4)
    w1 = tl.load(stamps + row * 4 + 1)
    w2 = tl.load(stamps + row * 4 + 2)
    w3 = tl.load(stamps + row * 4 + 3)
    good = _checked(w0, w1, w2)
    if LIFTED:
        good = good ^ FLIP
    due = w3 == good
    tl.store(stamps + row * 4 + 3, tl.where(due, w3 ^ FLIP, w3))
    tl.store(marked + row, due.to(tl.int8))


@triton.jit
def _move(source, target, here, there, size, N: tl.constexpr):
    one = tl.program_id(0)
    along = tl.program_id(1) * N + tl.arange(0, N)
    mask = along < size
    value = tl.load(source + tl.load(here + one) + along, mask=mask, other=0)
    tl.store(target + tl.load(there + one) + along, value, mask=mask)


@triton.jit
def _quantise(values, codes, units, block, N: tl.constexpr):
    """One block of one row to e4m3 codes, rounded in integers as the reference does."""
    row = tl.program_id(0)
    along = tl.arange(0, N)
    mask = along < block
    unit = tl.load(units + row)
    value = tl.load(values + row * block + along, mask=mask, other=0.0) / unit
    value = tl.minimum(tl.maximum(value, -448.0), 448.0)
    bits = value.to(tl.int32, bitcast=True).to(tl.int64)
    sign = (bits >> 31) & 1
    magnitude = bits & 0x7FFFFFFF
    exponent = magnitude >> 23
    mantissa = magnitude & 0x7FFFFF
    low = exponent < 121
    shift = 20 + tl.minimum(tl.maximum(121 - exponent, 0), 24)
    full = tl.where(exponent > 0, mantissa | (1 << 23), mantissa)
    body = tl.where(low, full, mantissa)
    kept = body >> shift
    rest = body - (kept << shift)
    half = (shift * 0 + 1) << (shift - 1)
    up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    rounded = kept + up.to(tl.int64)
    code = tl.where(low, rounded, ((exponent - 120) << 3) + rounded)
    code = (sign << 7) | tl.minimum(code, 0x7E)
    tl.store(codes + row * block + along, code.to(tl.uint8), mask=mask)


@triton.jit
def _expand(codes, units, values, block, N: tl.constexpr):
    row = tl.program_id(0)
    along = tl.arange(0, N)
    mask = along < block
    c = tl.load(codes + row * block + along, mask=mask, other=0).to(tl.int32)
    exponent = (c >> 3) & 15
    mantissa = c & 7
    # Normal codes as the bits of a float; the eight lowest count in steps of 2**-9.
    normal = (((exponent + 120) << 23) | (mantissa << 20)).to(tl.float32, bitcast=True)
    small = mantissa.to(tl.float32) * 0.001953125
    value = tl.where(exponent > 0, normal, small)
    value = tl.where((c >> 7) == 1, -value, value)
    tl.store(values + row * block + along, value * tl.load(units + row), mask=mask)


@triton.jit
def _score(keys, query, scores, d, N: tl.constexpr):
    row = tl.program_id(0)
    along = tl.arange(0, N)
    mask = along < d
    key = tl.load(keys + row * d + along, mask=mask, other=0.0).to(tl.float64)
    wanted = tl.load(query + along, mask=mask, other=0.0).to(tl.float64)
    tl.store(scores + row, tl.sum(key * wanted, axis=0))


@triton.jit
def _spin(out, rounds):
    value = tl.load(out)
    for _ in range(rounds):
        value = value * 1103515245 + 12345
    tl.store(out, value)
