"""906: the same content had other bytes before. Where each of several workers has a part of every
block, what one has is held against what it had itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group

_MOST = 4096
"""Moments that are remembered for parts that come late, and parts that wait for their moment."""

Content = tuple[int, ...]
Join = tuple[object, ...]


@dataclass(slots=True)
class _Moment:
    """A lane took fingerprints of blocks: of which content, None where that is not known."""

    group: Group
    held: list[tuple[int, Content | None]]
    taken: set[object] = field(default_factory=set)
    """Parts of it that others have told."""


class Prints:
    """Fingerprints, the first of each content. One that is `beside` another lane counts as of the
    moment in which that took its own of the same blocks: workers that do the same keep no time."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._first: dict[tuple[object, Content], tuple[Event, object]] = {}
        self._moments: dict[Join, _Moment] = {}
        self._early: dict[Join, list[Event]] = {}

    def take(self, event: Event, planned: int) -> None:
        """A `fingerprint` event; `planned` is where its step was handed out."""
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        beside = event.get("beside")
        if beside is not None:
            self._beside(event, _join(event, str(beside)))
            return
        moment = _Moment(group, self._held(event, group, planned))
        self._compare(event, moment)
        join = _join(event, event.actor)
        _remember(self._moments, join, moment)
        for early in self._early.pop(join, ()):
            self._beside(early, join)

    def _beside(self, event: Event, join: Join) -> None:
        moment = self._moments.get(join)
        part = event.get("part")
        if moment is None or part in moment.taken:
            _remember(self._early, join, [*self._early.get(join, ()), event])
            return
        moment.taken.add(part)
        self._compare(event, moment)

    def _held(
        self, event: Event, group: Group, planned: int
    ) -> list[tuple[int, Content | None]]:  # fmt: skip
        """The slot of each block, and what it holds."""
        st = self.ctx.fold.st
        held: list[tuple[int, Content | None]] = []
        for slot in self.ctx.slots(event):
            content: Content | None = None
            # A scheduler that plans ahead may have given the block to another since: what the
            # step left there is read all the same, before the other writes.
            if not (
                slot < 0
                or st.unsure[slot]
                or self.ctx.fold.in_gap(slot)
                or st.alloc_pos[slot] > planned
            ):
                c = self.ctx.fold.component(slot, group)
                content = (st.cid[c],) if st.cid[c] > 0 else (c, st.gen[slot], st.wpos[c])
            held.append((slot, content))
        return held

    def _compare(self, event: Event, moment: _Moment) -> None:
        part = event.get("part")
        for (slot, content), value in zip(moment.held, event["values"], strict=False):
            if content is None or value is None:
                continue
            first = self._first.setdefault((part, content), (event, value))
            if first[1] == value:
                continue
            block = self.ctx.fold.block_of[slot]
            whose = "" if part is None else f", part {part},"
            self.ctx.report(
                "HKV906",
                f"the bytes of block {block} of group {moment.group.name}{whose} are not those "
                f"that were fingerprinted at event {first[0].pos} ({first[0]['at']}), though "
                "nothing wrote them since",
                [first[0].pos, event.pos],
                slots=[slot],
                group=moment.group,
                request=event.req,
                check=first[0].pos,
                use=event.pos,
                believed={"fingerprint": first[1]},
                actual={"fingerprint": value},
            )


def _join(event: Event, lane: str) -> Join:
    # A load ends for each worker when it does, between whichever steps.
    step = None if event["at"] == "load" else event.get("step")
    return lane, event["at"], event["group"], tuple(event["blocks"]), event.req, step


def _remember(known: dict[Join, Any], join: Join, value: Any) -> None:
    known.pop(join, None)
    known[join] = value
    if len(known) > _MOST:
        del known[next(iter(known))]
