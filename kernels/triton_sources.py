"""The Triton sources: a program has some consecutive rows, and takes their units in their order,
whichever row they are of. A unit is the widest access that segments of one kind begin and end on.

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
def _quotient(number, factor, shift):
    """Numbers divided as `triton_kernels._divisor` has it: a multiplication is far cheaper."""
    return ((number.to(tl.int64) * factor) >> shift).to(tl.int32)


@triton.jit
def _rows(n, R):
    """The first row of this program, and how many it has."""
    base = tl.program_id(0).to(tl.int64) * R
    return base, tl.minimum(n - base, R).to(tl.int32)


@triton.jit
def _kind(about):
    """How segments of one kind divide into units; read once, not with every tile."""
    row, factor, shift = tl.load(about), tl.load(about + 1), tl.load(about + 2)
    units, by, down = tl.load(about + 3), tl.load(about + 4), tl.load(about + 5)
    return row, factor, shift, units, by, down, tl.load(about + 6), tl.load(about + 7)


@triton.jit
def _unit(
    unit, starts, segments, there, whole, factor, shift, units, by, down, first, at,
    W: tl.constexpr,
):  # fmt: skip
    """Units of consecutive rows, numbered through: their row, their byte in the buffer, and their
    byte in the row."""
    row = _quotient(unit, factor, shift)
    within = unit - row * whole
    piece = _quotient(within, by, down)
    start = tl.load(starts + (row * segments + first + piece), mask=there, other=0)
    # Said of the sum: what is said of a load is lost where it is asked for ahead.
    byte = tl.multiple_of(start + (within - piece * units) * W, W)
    return row, byte, tl.multiple_of(at + within * W, W)


@triton.jit
def _as_words(bytes_, W: tl.constexpr):
    """Places of units, each as the machine words it is made of: 16 bytes are two of eight."""
    if W >= 8:
        words = bytes_.to(tl.pointer_type(tl.int64))
    elif W == 4:
        words = bytes_.to(tl.pointer_type(tl.int32))
    elif W == 2:
        words = bytes_.to(tl.pointer_type(tl.int16))
    else:
        words = bytes_
    return words[:, None] + tl.arange(0, 2 if W == 16 else 1)[None, :]


@triton.jit
def _carried(
    buffer, starts, packed, about, count, segments, total, W: tl.constexpr, T: tl.constexpr,
    STAGES: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    whole, factor, shift, units, by, down, first, begin = _kind(about)
    for chunk in tl.range(
        tl.program_id(1) * T, count * whole, tl.num_programs(1) * T, num_stages=STAGES
    ):
        unit = chunk + tl.arange(0, T)
        there = unit < count * whole
        row, byte, at = _unit(unit, starts, segments, there, whole, factor, shift, units, by, down,
                              first, begin, W)  # fmt: skip
        place = _as_words(buffer + byte, W)
        even = _as_words(packed + tl.multiple_of(row * total + at, W), W)
        if OUT:
            tl.store(even, tl.load(place, mask=there[:, None]), mask=there[:, None])
        else:
            tl.store(place, tl.load(even, mask=there[:, None]), mask=there[:, None])


@triton.jit(do_not_specialize=["n", "segments", "total", "R"])
def _carry(
    buffer, starts, packed, abouts, n, segments, total, R,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """Rows out of their places into packed ones of `total` bytes, or back."""
    base, count = _rows(n, R)
    for c in tl.static_range(KINDS):
        _carried(buffer, starts + base * segments,
                 packed + tl.multiple_of(base * total, 1 << ((WIDTHS >> (3 * c)) & 7)),
                 abouts + c * 8, count, segments, total, 1 << ((WIDTHS >> (3 * c)) & 7), T,
                 STAGES, OUT)  # fmt: skip


@triton.jit
def _cleared(
    buffer, starts, about, count, segments, W: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr
):
    whole, factor, shift, units, by, down, first, begin = _kind(about)
    for chunk in tl.range(
        tl.program_id(1) * T, count * whole, tl.num_programs(1) * T, num_stages=STAGES
    ):
        unit = chunk + tl.arange(0, T)
        there = unit < count * whole
        _, byte, _ = _unit(unit, starts, segments, there, whole, factor, shift, units, by, down,
                              first, begin, W)  # fmt: skip
        place = _as_words(buffer + byte, W)
        tl.store(place, tl.zeros_like(place.to(tl.int64)).to(place.dtype.element_ty),
                 mask=there[:, None])  # fmt: skip


@triton.jit(do_not_specialize=["n", "segments", "R"])
def _zero(
    buffer, starts, abouts, n, segments, R,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    base, count = _rows(n, R)
    for c in tl.static_range(KINDS):
        _cleared(buffer, starts + base * segments, abouts + c * 8, count, segments,
                 1 << ((WIDTHS >> (3 * c)) & 7), T, STAGES)  # fmt: skip


@triton.jit
def _filled(
    buffer, starts, stamps, due, about, count, segments, W: tl.constexpr, T: tl.constexpr,
    STAGES: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    whole, factor, shift, units, by, down, first, begin = _kind(about)
    for chunk in tl.range(
        tl.program_id(1) * T, count * whole, tl.num_programs(1) * T, num_stages=STAGES
    ):
        unit = chunk + tl.arange(0, T)
        there = unit < count * whole
        row, byte, at = _unit(unit, starts, segments, there, whole, factor, shift, units, by, down,
                              first, begin, W)  # fmt: skip
        if SOME:
            there = there & (tl.load(due + row, mask=there, other=0) != 0)
        # A row's stamp is small and read often: it comes out of the cache.
        own = _as_words(stamps + row * 32 + tl.multiple_of(at % 32, W), W)
        tl.store(_as_words(buffer + byte, W), tl.load(own, mask=there[:, None]),
                 mask=there[:, None])  # fmt: skip


@triton.jit(do_not_specialize=["n", "segments", "R"])
def _stamp(
    buffer, starts, stamps, abouts, n, segments, R,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    base, count = _rows(n, R)
    for c in tl.static_range(KINDS):
        _filled(buffer, starts + base * segments, stamps + base * 32, stamps, abouts + c * 8,
                count, segments, 1 << ((WIDTHS >> (3 * c)) & 7), T, STAGES, False)  # fmt: skip


@triton.jit(do_not_specialize=["n", "segments", "R"])
def _poison(
    buffer, starts, found, due, abouts, n, segments, R,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    HEAD: tl.constexpr, JUDGE: tl.constexpr, WRITE: tl.constexpr, FLIP: tl.constexpr,
    LIFTED: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Which rows hold a stamp that is not marked yet (or, lifted, one that is): JUDGE; those with
    the mark flipped: WRITE. With HEAD a stamp is read off the first segment, which begins on so
    many bytes, else it is in `found`. No program has more than N rows; those that are the work of
    several are judged before any is written."""
    base, count = _rows(n, R)
    starts += base * segments
    found += base * 32
    due += base
    if JUDGE:
        row = tl.arange(0, N)
        there = row < count
        held = _stamps_at(buffer, starts, segments, found, row, there, HEAD)
        words = tl.load(held, mask=there[:, None], other=0)
        good = _checked(_word(words, 0), _word(words, 1), _word(words, 2))
        if LIFTED:
            good = good ^ FLIP
        tl.store(due + row, (_word(words, 3) == good).to(tl.int8), mask=there)
        last = (tl.arange(0, 4) == 3)[None, :]
        tl.store(_own(found, row), tl.where(last, words ^ FLIP, words), mask=there[:, None])
    if JUDGE and WRITE:
        tl.debug_barrier()
    if WRITE:
        for c in tl.static_range(KINDS):
            _filled(buffer, starts, found, due, abouts + c * 8, count, segments,
                    1 << ((WIDTHS >> (3 * c)) & 7), T, STAGES, True)  # fmt: skip


@triton.jit
def _own(found, row):
    """Where each row's four words are kept."""
    return (found + row * 32).to(tl.pointer_type(tl.int64))[:, None] + tl.arange(0, 4)[None, :]


@triton.jit
def _stamps_at(buffer, starts, segments, found, row, there, HEAD: tl.constexpr):
    """Where the words are of the stamps that rows hold."""
    if HEAD:
        first = tl.multiple_of(tl.load(starts + row * segments, mask=there, other=0), HEAD)
        return _own(buffer + first, row * 0)
    else:
        return _own(found, row)


@triton.jit
def _word(words, which: tl.constexpr):
    """One of the four words of each row."""
    return tl.sum(tl.where((tl.arange(0, 4) == which)[None, :], words, 0), axis=1)


@triton.jit
def _gone_through(
    buffer, starts, found, wrong, about, count, segments, W: tl.constexpr, T: tl.constexpr,
    STAGES: tl.constexpr, HEAD: tl.constexpr, CLEAR: tl.constexpr,
):  # fmt: skip
    whole, factor, shift, units, by, down, first, begin = _kind(about)
    for chunk in tl.range(
        tl.program_id(1) * T, count * whole, tl.num_programs(1) * T, num_stages=STAGES
    ):
        unit = chunk + tl.arange(0, T)
        there = unit < count * whole
        row, byte, at = _unit(unit, starts, segments, there, whole, factor, shift, units, by, down,
                              first, begin, W)  # fmt: skip
        here = tl.load(_as_words(buffer + byte, W), mask=there[:, None], other=0)
        if HEAD:
            # The row's own first bytes: nobody has to have found them before.
            held = buffer + tl.multiple_of(
                tl.load(starts + row * segments, mask=there, other=0), W)  # fmt: skip
        else:
            held = found + row * 32
        own = _as_words(held + tl.multiple_of(at % 32, W), W)
        due = tl.load(own, mask=there[:, None], other=0)
        # Few rows are torn: what says so is written by whoever sees it, all the same.
        torn = tl.max((here != due).to(tl.int32), axis=1) != 0
        tl.store(wrong + row, tl.full((T,), 1, tl.int8), mask=torn)
        if CLEAR:
            check = (found + row * 32 + 24).to(tl.pointer_type(tl.int64))
            tl.store(check, tl.zeros((T,), tl.int64), mask=torn)


@triton.jit(do_not_specialize=["n", "segments", "step", "R"])
def _verify(
    buffer, starts, found, expected, fields, wrong, abouts, n, segments, step, R,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, T: tl.constexpr, STAGES: tl.constexpr,
    HEAD: tl.constexpr, JUDGE: tl.constexpr, WHOLE: tl.constexpr, CHECK: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """Is the stamp that begins each row the one that is due: JUDGE; and does the row go on with
    it to its end: WHOLE. HEAD and N as in `_poison`; `step` is 0 where all rows have one `fields`.

    A program that does both asks for stamps first, but looks at them last: by then they are
    there."""
    base, count = _rows(n, R)
    starts += base * segments
    found += base * 32
    wrong += base
    row = tl.arange(0, N)
    there = row < count
    if JUDGE:
        held = _stamps_at(buffer, starts, segments, found, row, there, HEAD)
        words = tl.load(held, mask=there[:, None], other=0)
        along = tl.arange(0, 4)[None, :]
        due = tl.load(expected + base * 4 + row[:, None] * 4 + along, mask=there[:, None], other=0)
        care = fields + base * step + tl.multiple_of(row * step, 4)[:, None] + along
        mask = tl.load(care, mask=there[:, None], other=0)
    if JUDGE and WHOLE:
        tl.store(wrong + row, tl.zeros((N,), tl.int8), mask=there)
        tl.debug_barrier()
    if WHOLE:
        for c in tl.static_range(KINDS):
            _gone_through(buffer, starts, found, wrong, abouts + c * 8, count, segments,
                          1 << ((WIDTHS >> (3 * c)) & 7), T, STAGES, HEAD if JUDGE else 0,
                          not JUDGE)  # fmt: skip
    if JUDGE and WHOLE:
        tl.debug_barrier()
    if JUDGE:
        bad = tl.max((((words ^ due) & mask) != 0).to(tl.int32), axis=1) != 0
        if CHECK:
            good = _checked(_word(words, 0), _word(words, 1), _word(words, 2))
            bad = bad | (_word(words, 3) != good)
        if WHOLE:
            torn = tl.load(wrong + row, mask=there, other=0) != 0
            bad = bad | torn
            words = tl.where(torn[:, None] & (along == 3), 0, words)
        tl.store(wrong + row, bad.to(tl.int8), mask=there)
        tl.store(_own(found, row), words, mask=there[:, None])


@triton.jit
def _weighed(
    buffer, place, piece, chunk, begin, whole, units, there,
    W: tl.constexpr, B: tl.constexpr, C: tl.constexpr, ODD_: tl.constexpr,
):  # fmt: skip
    """C words of each row from `chunk` on in one of its segments, times their weights."""
    start = tl.multiple_of(tl.load(place + piece, mask=there, other=0), W)
    if B == 8:
        words = (buffer + start).to(tl.pointer_type(tl.int64))
    elif B == 4:
        words = (buffer + start).to(tl.pointer_type(tl.int32))
    elif B == 2:
        words = (buffer + start).to(tl.pointer_type(tl.int16))
    else:
        words = buffer + start
    along = chunk + tl.arange(0, C)
    mask = there[:, None] & ((along < units) & (along < whole - piece * units))[None, :]
    here = tl.load(words[:, None] + along[None, :], mask=mask, other=0).to(tl.int64)
    byte = (begin + (piece * units + along) * B).to(tl.int64)
    if B < 8:
        here = (here & ((1 << (8 * B)) - 1)) << ((byte % 8) * 8)[None, :]
    return here * ((byte // 8 * 2 + 1) * ODD_)[None, :]


@triton.jit
def _summed(
    buffer, starts, row, about, there, segments,
    W: tl.constexpr, B: tl.constexpr, C: tl.constexpr, ONCE: tl.constexpr, R: tl.constexpr,
    STAGES: tl.constexpr, ODD_: tl.constexpr,
):  # fmt: skip
    """What words of `B` bytes, C across, of one kind of segments come to. ONCE: C are enough for
    all of them; without a loop, what several kinds load is asked for side by side."""
    whole, units = tl.load(about) * (W // B), tl.load(about + 3) * (W // B)
    place = starts + row * segments + tl.load(about + 6)
    begin = tl.load(about + 7)
    if ONCE:
        acc = _weighed(buffer, place, 0, 0, begin, whole, units, there, W, B, C, ODD_)
    else:
        acc = tl.zeros((R, C), dtype=tl.int64)
        chunks = (units + C - 1) // C
        for step in tl.range(0, (whole + units - 1) // units * chunks, num_stages=STAGES):
            piece = step // chunks
            acc += _weighed(buffer, place, piece, (step - piece * chunks) * C, begin, whole, units,
                            there, W, B, C, ODD_)  # fmt: skip
    return tl.sum(acc, axis=1)


@triton.jit(do_not_specialize=["n", "segments", "total"])
def _sum(
    buffer, starts, sums, abouts, n, segments, total,
    WIDTHS: tl.constexpr, KINDS: tl.constexpr, ACROSS: tl.constexpr, ONCE: tl.constexpr,
    R: tl.constexpr, STAGES: tl.constexpr, ODD_: tl.constexpr,
):  # fmt: skip
    """Checksums of R rows, word by word as many across as `ACROSS` has for their kind."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < n
    result = tl.zeros((R,), dtype=tl.int64) + total.to(tl.int64) * ODD_
    for c in tl.static_range(KINDS):
        result += _summed(
            buffer, starts, row, abouts + c * 8, there, segments, 1 << ((WIDTHS >> (3 * c)) & 7),
            1 << (((WIDTHS >> (3 * c)) & 7) - ((WIDTHS >> (3 * c)) & 7) // 4),
            1 << ((ACROSS >> (4 * c)) & 15), (ONCE >> c) & 1, R, STAGES, ODD_,
        )  # fmt: skip
    tl.store(sums + row, result, mask=there)


@triton.jit(do_not_specialize=["count", "size", "tiles"])
def _move(source, target, places, count, size, tiles, W: tl.constexpr, T: tl.constexpr):
    """`size` units from each place in one buffer to one in another: of `places` the first `count`
    say from where, the others to where. Programs side by side have one block."""
    one = tl.program_id(0) // tiles
    unit = tl.program_id(0) % tiles * T + tl.arange(0, T)
    mask = (unit < size)[:, None]
    out = tl.multiple_of(tl.load(places + one), W)
    back = tl.multiple_of(tl.load(places + count + one), W)
    value = tl.load(_as_words(source + (out + unit * W), W), mask=mask)
    tl.store(_as_words(target + (back + unit * W), W), value, mask=mask)


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
