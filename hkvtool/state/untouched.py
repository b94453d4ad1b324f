"""Arrays that take memory where they are written to, and nowhere else.

A trace of a hundred million events names tens of millions of requests and hashes, of which a few
thousand are alive at a time: what is kept of the others is one value over and over.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np

LEAST = 1 << 20
"""Bytes from which on it is worth while."""

_PIECE = 1 << 22
"""Bytes that are mapped again and again where an empty place is not zero."""

_FIXED = 0x10
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers that the C libraries' headers give them."""

_FAILED = ctypes.c_void_p(-1).value


def untouched(size: int, empty: int, kind: Any) -> Any | None:
    """An array of one value, 0 or -1; None where that is no gain or cannot be had here."""
    nbytes = size * kind.itemsize
    if nbytes < LEAST or empty not in (0, -1) or not sys.platform.startswith("linux"):
        return None
    length = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = _libc()
    private = mmap.MAP_PRIVATE
    access = mmap.PROT_READ | mmap.PROT_WRITE
    start = libc.mmap(None, length, access, private | mmap.MAP_ANONYMOUS, -1, 0)
    if start in (None, _FAILED):
        return None
    if empty:
        for at in range(0, length, _PIECE):
            part = min(_PIECE, length - at)
            if libc.mmap(start + at, part, access, private | _FIXED, _ones(), 0) == _FAILED:
                libc.munmap(start, length)
                return None
    owner = (ctypes.c_char * length).from_address(start)
    finalize(owner, libc.munmap, start, length)
    return np.frombuffer(owner, kind, size)


def cleared(column: Any) -> bool:
    """Give back what an array of `untouched` has been written to; False where it is another."""
    owner = column
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, ctypes.Array):
        return False
    length = ctypes.sizeof(owner)
    return not _libc().madvise(ctypes.addressof(owner), length, mmap.MADV_DONTNEED)


def keep_little() -> None:
    """From here on give back at once what is freed of larger arrays: who looks around in a trace
    needs a hundred megabytes for a moment, then little for long."""
    # What Arrow reads when it is imported, which is later than this.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if sys.platform.startswith("linux") and hasattr(_libc(), "mallopt"):
        _libc().mallopt(_MMAP_THRESHOLD, LEAST)
        _libc().mallopt(_TRIM_THRESHOLD, LEAST)


def give_back_code(library: str) -> None:
    """Let go of the machine code of a shared library that was needed once: it comes back from its
    file if it is needed again. The compiler of the fold has fifty megabytes of it."""
    if not sys.platform.startswith("linux"):
        return
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        mapped = [line.split(None, 5) for line in file]
    for fields in mapped:
        # Nothing was ever written to what can only be read and run.
        if len(fields) == 6 and fields[1] == "r-xp" and library in os.path.basename(fields[5]):
            start, _, end = fields[0].partition("-")
            length = int(end, 16) - int(start, 16)
            _libc().madvise(int(start, 16), length, mmap.MADV_DONTNEED)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size, address, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    libc.mmap.restype = address
    libc.munmap.argtypes = [address, size]
    libc.madvise.argtypes = [address, size, number]
    return libc


@cache
def _ones() -> int:
    """A file of as many bytes as a piece has, all of them set. It is never changed: what is written
    to a private mapping of it is the writer's own."""
    file = os.memfd_create("hkvtool-untouched")
    os.write(file, b"\xff" * _PIECE)
    return file
