"""The compiled fold, row by row as somebody asks for it."""

from __future__ import annotations

from hkvtool.analyzers.screen_fold import RowFold
from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE
from hkvtool.state.batch import Batch
from hkvtool.state.codes import FOLDED
from hkvtool.state.fold import Problem, Transfer

_FOLDED = frozenset(BY_CODE[code].name for code in FOLDED)


class NarrowedFold(RowFold):
    """Folds up to a row when told, and then the row that is an event."""

    def begin(self, batch: Batch) -> None:
        """From here on rows are those of a batch."""
        self.room_for_moves(batch)
        self._lists = batch.blocks.values.copy(), batch.blocks2.values.copy(), batch.handle
        self.batch, self.row = batch, 0

    def to(self, row: int) -> None:
        """Fold what comes before a row."""
        if self.row < row:
            self._rows(self.batch, self.row, row, self._lists)
            self.row = row

    def apply(self, event: Event) -> Problem | None:
        self.row += 1
        if event.ev not in _FOLDED:
            return super().apply(event)
        refused = self.refused
        self._rows(self.batch, self.row - 1, self.row, self._lists)
        if self.refused > refused:
            # Folded plain, it is refused as well, and told why.
            return super().apply(event)
        if event.ev in ("store_begin", "load_begin"):
            group = self.group(event["group"])
            far = event.get("to" if event.ev == "store_begin" else "from")
            assert group is not None
            there = None if far is None else self.declared.pools.get(str(far))
            self.transfers[str(event["handle"])] = Transfer(event, group, there)
        return None
