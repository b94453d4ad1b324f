"""7xx: check against use. A block is read as it was checked, by who may, where it is.

This module asks every family that has something to say about a read, what changed since its check
(701) included. The other parts are `races` (702, 703, 709), `refcounts` (704), `pointers` (705,
707, 708) and `buffers` (706).
"""

from __future__ import annotations

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.components import report_left_behind
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.migration import of_migration
from hkvtool.state.reading import read_of_use
from hkvtool.state.use_faults import use_faults


class Uses(Silent):
    """Judges reads; which of a read's faults is its root is `attribution`'s to say."""

    codes = frozenset({"HKV701"})
    kinds = frozenset({"use"})

    def before(self, event: Event) -> None:
        if event.ev != "use" or event.get("pad"):
            return
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        read = read_of_use(self.ctx, event, group)
        faults = use_faults(self.ctx, read)
        if not faults:
            return
        faults = of_migration(self.ctx, read, faults)
        report_left_behind(self.ctx, read, faults)
        settle(self.ctx, read, faults)
