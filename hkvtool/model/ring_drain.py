"""Taking events out of a ring that goes on being written."""

from __future__ import annotations

import mmap
import os
from typing import Any

from hkvtool.model.regular import regular
from hkvtool.model.ring_format import HEADER_BYTES, RingHeader, RingState, Word
from hkvtool.model.ring_reader import Record, RingCount, RingReader, opened


class RingDrain:
    """Takes events out of a ring, so that their room can be used again. One drain a ring.

    They are read as they come (`read`) and given up once they are safe elsewhere (`release`).
    Raises RingError, OSError where the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.count = RingCount()
        with open(path, "r+b", opener=regular) as file:
            self.header = RingHeader.unpack(file.read(HEADER_BYTES))
            self._map = mmap.mmap(file.fileno(), HEADER_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._at = self._words[Word.TAIL], self._words[Word.TAIL_SEQ]
        self.error = ""

    @property
    def place(self) -> tuple[int, int]:
        """Up to where it was read: the position, and the number of the next event."""
        return self._at

    @property
    def waiting(self) -> int:
        """Bytes that are there to be read."""
        return int(self._words[Word.HEAD]) - self._at[0]

    @property
    def filled(self) -> float:
        """How full the ring is, from 0 to 1."""
        return float(self._words[Word.HEAD] - self._words[Word.TAIL]) / self.header.capacity

    @property
    def ended(self) -> bool:
        """Whether its writer has said that no event comes any more."""
        return bool(self._words[Word.STATE] == RingState.CLOSED)

    @property
    def dropped(self) -> int:
        """Events that its writer has dropped so far."""
        return int(self._words[Word.DROPPED])

    def skip(self, position: int, seq: int) -> None:
        """What comes before that is safe already: a drain that died did not get to release it."""
        if seq > self._at[1]:
            self._at = position, seq
            self.release()

    def read(self, *, last: bool = False) -> list[Record]:
        """The records that have come since; `last` if the writer has ended."""
        reader = RingReader.open(self.path, self._at)
        found = list(reader.told(last=last))
        self.count.add(reader.count)
        self.error = reader.error
        self._at = reader.head, reader.next_seq
        return found

    def release(self) -> None:
        """Let the writer have the room of all that was read."""
        self._words[Word.TAIL_SEQ] = self._at[1]
        self._words[Word.TAIL] = self._at[0]

    def take(self, *, last: bool = False) -> list[tuple[int, dict[str, Any]]]:
        """Time and event of everything that is there now, given up at once."""
        found = self.read(last=last)
        self.release()
        return [(r.ts, opened(r.kind, r.payload, self.count)) for r in found]

    def close(self) -> None:
        """Give the mapping back."""
        self._words.release()
        self._map.close()
