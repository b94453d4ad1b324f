"""A compiled fold as an image that folds start from again and again.

The arrays of a large pool are hundreds of megabytes: copying them for every step back would take
longer than looking. An image lies in memory once; each fold from it sees its pages and has its own
of those that it changes.
"""

from __future__ import annotations

import mmap
import os
from copy import copy, deepcopy
from typing import Any

import numpy as np

from hkvtool.state import arrays as a
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.fold import Transfer

_PAGE = 1 << 16
"""Bytes that are left out of an image where all of them are zero."""


class Image:
    """A fold at a position; it takes over the fold's arrays and keeps them once."""

    def __init__(self, fold: CompiledFold, pos: int) -> None:
        self.pos = pos
        sizes = [-(-column.nbytes // _PAGE) * _PAGE for column in fold.st]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        kinds = [(len(column), column.dtype) for column in fold.st]
        self._places = list(zip(a.Arrays._fields, starts[:-1].tolist(), kinds, strict=True))
        self._size = int(starts[-1])
        self._file = os.memfd_create("hkvtool-image")
        try:
            os.ftruncate(self._file, self._size)
            for name, start, _ in self._places:
                self._write(getattr(fold.st, name), start)
                # One array after the other, so that there are never two of all of them.
                fold.st = fold.st._replace(**{name: np.zeros(0, np.int64)})
        except BaseException:
            self.close()
            raise
        self._mapped = fold._mapped.copy()
        self._fold = fold

    def fold(self) -> CompiledFold:
        """A fold that stands where the image was made."""
        kept = self._fold
        fold = copy(kept)
        fold.imaged = True
        same: dict[int, Any] = {}
        fold.declared = deepcopy(kept.declared, same)
        fold._pools = deepcopy(kept._pools, same)
        fold.transfers = {
            name: Transfer(t.begin, deepcopy(t.group, same), deepcopy(t.far, same))
            for name, t in kept.transfers.items()
        }
        fold.gaps = dict(kept.gaps)
        fold._slots = [dict(slots) for slots in kept._slots]
        fold._beyond = [dict(slots) for slots in kept._beyond]
        fold._mapped = self._mapped.copy()
        fold._columns = None
        fold._control = {k: getattr(fold, m.__name__) for k, m in kept._control.items()}
        pages = mmap.mmap(self._file, self._size, mmap.MAP_PRIVATE)
        fold.st = a.Arrays(
            *(np.frombuffer(pages, kind, n, start) for _, start, (n, kind) in self._places)
        )
        return fold

    def close(self) -> None:
        """Let the memory go, once the folds from it are gone too."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def _write(self, column: Any, start: int) -> None:
        data = memoryview(np.ascontiguousarray(column).data).cast("B")
        for at in range(0, len(data), _PAGE):
            part = data[at : at + _PAGE]
            if np.frombuffer(part, np.uint8).any():
                os.pwrite(self._file, part, start + at)
