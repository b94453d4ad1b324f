"""The Triton sources: one program a tile of some rows, in units of the widest word that every
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
def _part(w0, w1, w2, w3, byte, W: tl.constexpr):
    """What rows of stamps hold from `byte` on, in the low end of a word."""
    which = ((byte // 8) % 4)[None, :]
    low = tl.where(which == 0, w0[:, None], w1[:, None])
    value = tl.where(which < 2, low, tl.where(which == 2, w2[:, None], w3[:, None]))
    if W < 8:
        value = value >> ((byte % 8) * 8).to(tl.int64)[None, :]
    return value


@triton.jit(do_not_specialize=["n"])
def _mark(stamps, due, n, FLIP: tl.constexpr, LIFTED: tl.constexpr, N: tl.constexpr):
    """Which rows hold a stamp that is not marked yet (or, lifted, one that is); theirs flipped."""
    row = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    there = row < n
    w0 = tl.load(stamps + row * 4, mask=there, other=0)
    w1 = tl.load(stamps + row * 4 + 1, mask=there, other=0)
    w2 = tl.load(stamps + row * 4 + 2, mask=there, other=0)
    w3 = tl.load(stamps + row * 4 + 3, mask=there, other=0)
    good = _checked(w0, w1, w2)
    if LIFTED:
        good = good ^ FLIP
    tl.store(due + row, (w3 == good).to(tl.int8), mask=there)
    tl.store(stamps + row * 4 + 3, tl.where(w3 == good, w3 ^ FLIP, w3), mask=there)


@triton.jit(do_not_specialize=["n", "segments"])
def _stamp(
    words, starts, stamps, due, spans, n, segments,
    W: tl.constexpr, R: tl.constexpr, C: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Stamps over whole rows; with SOME over those that are due only."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    if SOME:
        there = there & (tl.load(due + row, mask=there, other=0) != 0)
    w0 = tl.load(stamps + row * 4, mask=there, other=0)
    w1 = tl.load(stamps + row * 4 + 1, mask=there, other=0)
    w2 = tl.load(stamps + row * 4 + 2, mask=there, other=0)
    w3 = tl.load(stamps + row * 4 + 3, mask=there, other=0)
    for seg in range(segments):
        count = tl.load(spans + seg * 2)
        at = tl.load(spans + seg * 2 + 1)
        first = tl.load(starts + row * segments + seg, mask=there, other=0) // W
        for chunk in range(tl.program_id(1) * C, count, tl.num_programs(1) * C):
            along = chunk + tl.arange(0, C)
            mask = there[:, None] & (along < count)[None, :]
            value = _part(w0, w1, w2, w3, at + along * W, W)
            place = words + first[:, None] + along[None, :]
            tl.store(place, value.to(words.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n", "segments", "total"])
def _carry(
    words, starts, packed, spans, n, segments, total,
    W: tl.constexpr, R: tl.constexpr, C: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Rows out of their places into packed ones of `total` words, or back; what is longer is
    cut."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    for seg in range(segments):
        count = tl.load(spans + seg * 2)
        at = tl.load(spans + seg * 2 + 1) // W
        count = tl.minimum(count, total - at)
        first = tl.load(starts + row * segments + seg, mask=there, other=0) // W
        for chunk in range(tl.program_id(1) * C, count, tl.num_programs(1) * C):
            along = chunk + tl.arange(0, C)
            mask = there[:, None] & (along < count)[None, :]
            place = words + first[:, None] + along[None, :]
            even = packed + (row * total + at)[:, None] + along[None, :]
            if OUT:
                tl.store(even, tl.load(place, mask=mask, other=0), mask=mask)
            else:
                tl.store(place, tl.load(even, mask=mask, other=0), mask=mask)


@triton.jit(do_not_specialize=["n", "segments"])
def _zero(words, starts, spans, n, segments, W: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    none = tl.zeros((R, C), dtype=words.dtype.element_ty)
    for seg in range(segments):
        count = tl.load(spans + seg * 2)
        first = tl.load(starts + row * segments + seg, mask=there, other=0) // W
        for chunk in range(tl.program_id(1) * C, count, tl.num_programs(1) * C):
            along = chunk + tl.arange(0, C)
            mask = there[:, None] & (along < count)[None, :]
            tl.store(words + first[:, None] + along[None, :], none, mask=mask)


@triton.jit(do_not_specialize=["n", "segments", "total", "step"])
def _whole(
    words, starts, found, expected, fields, wrong, spans, n, segments, total, step,
    W: tl.constexpr, R: tl.constexpr, C: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Is each row one stamp from end to end, and the one that is due? With HEAD the stamp is read
    off the first segment, else it is in `found`. `step` is 0 where all rows have one `fields`."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    if HEAD:
        source = words + tl.load(starts + row * segments, mask=there, other=0) // W
    else:
        source = found + row * 4
    w0 = tl.load(source, mask=there, other=0)
    w1 = tl.load(source + 1, mask=there, other=0)
    w2 = tl.load(source + 2, mask=there, other=0)
    w3 = tl.load(source + 3, mask=there, other=0)
    torn = tl.zeros((R, C), dtype=tl.int32)
    for seg in range(segments):
        count = tl.load(spans + seg * 2)
        at = tl.load(spans + seg * 2 + 1)
        first = tl.load(starts + row * segments + seg, mask=there, other=0) // W
        for chunk in range(0, count, C):
            along = chunk + tl.arange(0, C)
            mask = there[:, None] & (along < count)[None, :]
            here = tl.load(words + first[:, None] + along[None, :], mask=mask, other=0)
            due = _part(w0, w1, w2, w3, at + along * W, W)
            torn = torn | ((here != due.to(words.dtype.element_ty)) & mask).to(tl.int32)
    is_torn = tl.max(torn, axis=1) > 0
    care = fields + row * step
    due = expected + row * 4
    other = (w0 ^ tl.load(due, mask=there, other=0)) & tl.load(care, mask=there, other=0)
    other |= (w1 ^ tl.load(due + 1, mask=there, other=0)) & tl.load(care + 1, mask=there, other=0)
    other |= (w2 ^ tl.load(due + 2, mask=there, other=0)) & tl.load(care + 2, mask=there, other=0)
    other |= (w3 ^ tl.load(due + 3, mask=there, other=0)) & tl.load(care + 3, mask=there, other=0)
    bad = (other != 0) | is_torn | ((w3 != _checked(w0, w1, w2)) & (total >= 32))
    tl.store(wrong + row, bad.to(tl.int8), mask=there)
    if HEAD:
        tl.store(found + row * 4, w0, mask=there)
        tl.store(found + row * 4 + 1, w1, mask=there)
        tl.store(found + row * 4 + 2, w2, mask=there)
    tl.store(found + row * 4 + 3, tl.where(is_torn, tl.zeros_like(w3), w3), mask=there)


@triton.jit(do_not_specialize=["n", "segments", "total"])
def _sum(
    words, starts, sums, spans, n, segments, total,
    W: tl.constexpr, R: tl.constexpr, C: tl.constexpr, ODD_: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    acc = tl.zeros((R, C), dtype=tl.int64)
    for seg in range(segments):
        count = tl.load(spans + seg * 2)
        at = tl.load(spans + seg * 2 + 1)
        first = tl.load(starts + row * segments + seg, mask=there, other=0) // W
        for chunk in range(0, count, C):
            along = chunk + tl.arange(0, C)
            mask = there[:, None] & (along < count)[None, :]
            here = tl.load(words + first[:, None] + along[None, :], mask=mask, other=0)
            here = here.to(tl.int64)
            byte = (at + along * W).to(tl.int64)
            if W < 8:
                here = (here & ((1 << (8 * W)) - 1)) << ((byte % 8) * 8)[None, :]
            acc += here * ((byte // 8 * 2 + 1) * ODD_)[None, :]
    tl.store(sums + row, tl.sum(acc, axis=1) + total.to(tl.int64) * ODD_, mask=there)


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
    # A plain division is rounded less exactly than torch's.
    value = tl.div_rn(tl.load(values + row * block + along, mask=mask, other=0.0), unit)
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
