"""Files changed for the worse: what a cut disk, a wrong tool or an enemy makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

_EVIL = (
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff",
    b"\x91" * 700, b"\x81\x91\x01", b"\xc9\x7f\xff\xff\xff\x01", b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xcf" + b"\xff" * 8, b"\xcb\x7f\xf8\0\0\0\0\0\0", b"\xa4\xff\xfe\xfd\xfc",
    b"[" * 3000, b'{"a":' * 500, b"1e999", b"-1", b"9" * 5000, b"NaN", b"null", b'"\\ud800"', b"true",
    b"18446744073709551616", b"\0", b"\n", b"\x80\x04", b"cos\nsystem\n(S'true'\ntR.",
    b"r\xff\xff\xff\x7f", b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", b"2" * 300, b"]" * 300, b"(" * 300,
    b"\x8b\xff\xff\xff\x7f", b"q\x00h\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"=", b" ",
)  # fmt: skip


def mutated(sample: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many versions of a sample, the same of the same seed."""
    rnd = random.Random(seed)
    for _ in range(count):
        data = bytearray(sample)
        for _ in range(rnd.choice((1, 1, 1, 2, 4, 8))):
            _change(data, rnd)
        yield bytes(data)


def _change(data: bytearray, rnd: random.Random) -> None:
    if not data:
        data += rnd.choice(_EVIL)
        return
    at = rnd.randrange(len(data))
    end = min(len(data), at + rnd.choice((1, 2, 4, 16, 200)))
    kind = rnd.randrange(8)
    if kind == 0:
        data[at] = rnd.randrange(256)
    elif kind == 1:
        data[at] ^= 1 << rnd.randrange(8)
    elif kind == 2:
        del data[at:end]
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        data[at:at] = rnd.choice(_EVIL)
    elif kind == 5:
        data[at:end] = rnd.choice(_EVIL)
    elif kind == 6:
        data[at:at] = data[at:end] * rnd.choice((1, 2, 30))
    else:
        other = rnd.randrange(len(data))
        data[at:end] = data[other : other + end - at]
