"""301 of codecs: compressed content must be of the codec that its group's kernels read."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.moves import share


class Codecs:
    """Remembers the codec that content is said to be of, where transfers or hashes say it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.of_content: dict[int, str] = {}
        self.published: dict[int, tuple[int, str]] = {}

    def follow(self, event: Event) -> None:
        """Take one event into account."""
        if event.ev in ("store_begin", "load_begin"):
            self._moved(event)
        elif event.ev == "publish" and "codec" in event:
            for slot in self.ctx.slots(event):
                self.published[slot] = (self.ctx.fold.st.gen[slot], event["codec"])

    def _moved(self, event: Event) -> None:
        """What a transfer takes along is of the codec it states. What a load brings from a block
        that nobody described is of the codec that this tier's group keeps."""
        fold = self.ctx.fold
        st = fold.st
        _, group, far = fold.transfers[str(event["handle"])]
        codec = event.get("codec")
        there = fold.declared.mirror(group, far) if far else None
        kept = None if there is None else there.layout.get("codec")
        if codec is None and (event.ev == "store_begin" or kept is None):
            return
        number = fold.names.find("handle", str(event["handle"]))
        for i in range(st.t_len[number]):
            record = st.t_off[number] + i * a.RECORD
            content, peer = st.arena[record + 4], st.arena[record + 2]
            if content == 0:
                continue
            if codec is not None:
                self.of_content[content] = codec
            elif content not in self.of_content and peer >= 0 and st.known[peer] == a.UNKNOWN:
                if kept is not None and share(peer, group) not in self.ctx.moves.stored_to:
                    self.of_content[content] = kept

    def faults(self, group: Group, blocks: Sequence[int]) -> list[Fault]:
        """Blocks whose content is of another codec than the group's layout."""
        own = group.layout.get("codec")
        if own is None:
            return []
        fold = self.ctx.fold
        st = fold.st
        faults: list[Fault] = []
        for slot in [fold.slot(group.pool, b) for b in blocks]:
            c = fold.component(slot, group) if slot >= 0 else -1
            if slot < 0 or st.cgen[c] != st.gen[slot]:
                continue
            gen, codec = self.published.get(slot, (-1, None))
            if gen != st.gen[slot]:
                codec = self.of_content.get(st.cid[c])
            if codec is not None and codec != own:
                why = f"its content is of codec {codec}, the group's is {own}"
                faults.append(Fault("HKV301", Kind.CODEC, slot, (st.lo[c], st.hi[c]), why))
        return faults
