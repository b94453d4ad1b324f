"""How far the writer of a ring has come: what each event changes, in Python or in C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hkvtool.recorder.native import compiled


class PlainCursor:
    """The fields, where no compiled emitter shares them."""

    __slots__ = ("_at", "_busy", "_head", "_limit", "_off", "_seq")

    _at: int
    _head: int
    _seq: int
    _limit: int
    """Up to where a prepared emitter may store, of `_at`, without asking for anything."""
    _busy: bool
    _off: bool

    def _map_records(self, fd: int, header: int, capacity: int, word: int) -> None:
        """Let compiled emitters at the file; there are none."""

    def _put(self, kind: int, payload: bytes) -> bool:
        """Store a record where nothing stands in the way; False: `Ring.emit` does it."""
        return False

    def _unmap_records(self) -> None:
        """The end of that."""


if TYPE_CHECKING or compiled is None:
    Cursor = PlainCursor
else:
    Cursor = compiled.Cursor
