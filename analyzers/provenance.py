"""One request followed through a trace: what it read, where that came from, how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.layers import Passage, gone, passages
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.reading import reader_number
from hkvtool.state.requests import Request
from hkvtool.state.serving import filled, known, live_entries


@dataclass(slots=True)
class Source:
    """Where the content of one reused block came from.

    `written` is where the content came to stand in the block, `published` where the hash that
    leads to it was, `loaded` and `stored` where it came back from a lower tier and went out;
    `empty` where nothing was written in the block's present generation.
    """

    group: str
    pool: str
    block: int
    generation: int
    tokens: tuple[int, int] | None
    version: int | None
    writer: str | None
    written: int | None
    hash: str | None = None
    published: int | None = None
    loaded: int | None = None
    stored: int | None = None
    tier: str | None = None
    peer: int | None = None
    known: bool = True
    empty: bool = False

    def as_json(self) -> dict[str, Any]:
        out = {name: getattr(self, name) for name in self.__slots__}
        out["tokens"] = list(self.tokens) if self.tokens else None
        return out


@dataclass(slots=True)
class Attempt:
    """One lookup and the resume that followed from it.

    `best` is the longest hit of any single group, `of` that group; `at` where the request went
    on from, None where no resume was recorded.
    """

    lookup: int | None
    resume: int | None
    asked: int
    best: int
    of: str | None
    at: int | None
    groups: list[Passage] = field(default_factory=list)

    @property
    def thrown_away(self) -> int:
        return max(0, self.best - (self.best if self.at is None else self.at))

    @property
    def limiting(self) -> Passage | None:
        """The group that could do least for the longest hit."""
        short = [p for p in self.groups if p.stopped_by is not None]
        return min(short, key=lambda p: p.hit or 0, default=None)

    def as_json(self) -> dict[str, Any]:
        limiting = self.limiting if self.thrown_away else None
        return {
            "lookup": self.lookup,
            "resume": self.resume,
            "asked": self.asked,
            "longest_hit": self.best,
            "longest_hit_of": self.of,
            "resumed_at": self.at,
            "thrown_away": self.thrown_away,
            "limiting_group": limiting.group if limiting else None,
            "groups": [p.as_json() for p in self.groups],
        }


class Follow(Silent):
    """Follows the request of one name."""

    def __init__(self, ctx: Context, name: str) -> None:
        super().__init__(ctx)
        self.name = name
        self.first: int | None = None
        self.last = 0
        self.earliest: int | None = None
        """Where the oldest content that the request read was written."""
        self.evidence = frozenset(ctx.evidence)
        self.attempts: list[Attempt] = []
        self.reads = 0
        self.judged = 0
        self.groups: set[str] = set()
        self.readings: set[int] = set()
        """Positions where it reads."""
        self.did: set[int] = set()
        """Positions of everything it does."""
        self.held: dict[tuple[str, int], tuple[int, int]] = {}
        """Blocks that it read, by pool and id: from the allocation on, to the last read."""
        self.sources: dict[tuple[int, str], Source] = {}
        self._looked: tuple[Event, list[Passage]] | None = None
        self._brought: set[tuple[int, str]] = set()
        self._read: set[tuple[int, str]] = set()

    def before(self, event: Event) -> None:
        if event.req != self.name:
            if event.ev == "use" and event.req is None and self._in_step(event):
                # Reads of the whole batch are its own where they are of what it holds.
                self.last = event.pos
                self._use(event, self._held_in(event))
            return
        if self.first is None:
            self.first = event.pos
            self.evidence = frozenset(self.ctx.evidence)
        self.last = event.pos
        self.did.add(event.pos)
        self._see_evidence(event)
        if event.ev == "lookup":
            self._close(None)
        elif event.ev == "resume":
            self._close(event)
            self._bring(event)
        elif event.ev == "use" and not event.get("pad"):
            self._use(event, self.ctx.slots(event))
        elif event.ev in ("finish", "abort", "preempt"):
            self._close(None)

    def after(self, event: Event) -> None:
        if event.ev == "evidence" and self.first is not None:
            self._see_evidence(event)
        elif event.ev == "lookup" and event.req == self.name:
            # As things stood at the hit, in case no resume follows.
            best = max((int(t) for t in event["hit"].values()), default=0)
            passed = passages(self.ctx, self._request(), event, None, best)
            self._looked = (event, passed)

    def finish(self) -> None:
        self._close(None)

    def _see_evidence(self, event: Event) -> None:
        """What holds all along is what the request can be judged by."""
        classes = self.ctx.lane_evidence.get(event.actor, self.ctx.evidence)
        self.evidence &= frozenset(classes)

    def _request(self) -> Request:
        found = self.ctx.requests.by_name.get(self.name)
        return Request(self.name, 0) if found is None else found

    # --- lookups -----------------------------------------------------------------------------

    def _close(self, resume: Event | None) -> None:
        looked, self._looked = self._looked, None
        if looked is None and resume is None:
            return
        lookup = looked[0] if looked else None
        hits = {} if lookup is None else {str(g): int(t) for g, t in lookup["hit"].items()}
        at = None if resume is None else int(resume["at"])
        best = max(hits.values(), default=0)
        asked = 0 if lookup is None else max(lookup.get("tokens") or 0, best)
        target = max(best, at or 0)
        attempt = Attempt(
            lookup.pos if lookup else None,
            resume.pos if resume else None,
            asked,
            best,
            max(hits, key=lambda g: hits[g]) if best else None,
            at,
            looked[1] if looked and resume is None
            else passages(self.ctx, self._request(), lookup, resume, target),
        )  # fmt: skip
        if attempt.thrown_away and attempt.of is not None:
            self._explain(attempt, lookup, target)
        self.attempts.append(attempt)

    def _explain(self, attempt: Attempt, lookup: Event | None, target: int) -> None:
        """What became of what the short groups lack."""
        best = self.ctx.fold.group(attempt.of)
        found = {} if lookup is None else lookup.get("blocks") or {}
        ids = found.get(attempt.of) or []
        writer = None
        if best is not None and ids:
            slot = self.ctx.fold.slot(best.pool, ids[-1])
            if slot >= 0:
                origin = self.ctx.fold.st.origin[self.ctx.fold.component(slot, best)]
                if origin >= 0:
                    name = str(self.ctx.fold.names.name("req", origin))
                    writer = self.ctx.requests.by_name.get(name)
        for passage in attempt.groups:
            group = self.ctx.fold.group(passage.group)
            if passage.stopped_by is not None and group is not None:
                passage.gone = gone(self.ctx, group, target, writer)

    # --- reads -------------------------------------------------------------------------------

    def _bring(self, event: Event) -> None:
        for name, blocks in (event.get("blocks") or {}).items():
            group = self.ctx.fold.group(name)
            if group is None:
                continue
            for block in blocks:
                slot = self.ctx.fold.slot(group.pool, block)
                if slot >= 0 and block not in group.pool.reserved:
                    self._brought.add((slot, group.name))
                    self._read.discard((slot, group.name))
                    self.sources[slot, group.name] = self._source(slot, group)

    def _in_step(self, event: Event) -> bool:
        return event.step is not None and self.name in self.ctx.step_reqs.get(event.step, ())

    def _held_in(self, event: Event) -> list[int]:
        """What of an event's blocks the request held when the step was dispatched."""
        request = self._request()
        at = self.ctx.dispatched.get(event.step or 0, event.pos)
        return [s for s in self.ctx.slots(event) if s >= 0 and request.held_at(s, at)]

    def _use(self, event: Event, slots: Sequence[int]) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        st = self.ctx.fold.st
        self.groups.add(group.name)
        self.readings.add(event.pos)
        own = reader_number(self.ctx, self._request())
        for slot in slots:
            if slot < 0 or self.ctx.fold.block_of[slot] in group.pool.reserved:
                continue
            self.reads += 1
            self.judged += known(self.ctx.fold, slot)
            place = (group.pool.name, self.ctx.fold.block_of[slot])
            self.held[place] = (int(st.alloc_pos[slot]), event.pos)
            key = (slot, group.name)
            if key in self._read:
                continue
            self._read.add(key)
            c = self.ctx.fold.component(slot, group)
            theirs = filled(self.ctx.fold, slot, c) and (
                st.origin[c] != own or self.ctx.moves.load_of(slot, group) is not None
            )
            mates = {m.name for m in self.ctx.fold.declared.mates(group)}
            if theirs or any((slot, m) in self._brought for m in mates):
                self.sources[key] = self._source(slot, group)

    def _source(self, slot: int, group: Group) -> Source:
        fold, st = self.ctx.fold, self.ctx.fold.st
        c = fold.component(slot, group)
        current = filled(fold, slot, c)
        origin = st.origin[c] if current else -1
        written = int(st.wpos[c]) if current and st.wpos[c] >= 0 else None
        found = Source(
            group.name, group.pool.name, fold.block_of[slot], int(st.gen[slot]),
            (int(st.lo[c]), int(st.hi[c])) if current and st.vague[c] == 0 else None,
            int(st.ver[c]) if current and st.ver[c] != MISSING else None,
            str(fold.names.name("req", origin)) if origin >= 0 else None,
            written,
            known=known(fold, slot), empty=not current,
        )  # fmt: skip
        entry = next(live_entries(fold, slot, group), None)
        if entry is not None:
            found.hash = str(fold.names.name("hash", st.e_hash[entry]))
            found.published = int(st.e_pos[entry])
        self._carried(found, slot, group)
        oldest = [p for p in (found.written, found.published, found.stored) if p is not None]
        if oldest:
            self.earliest = min([*oldest, self.earliest or min(oldest)])
        return found

    def _carried(self, found: Source, slot: int, group: Group) -> None:
        """The load that brought the content, and the store that took it out before."""
        load = self.ctx.moves.load_of(slot, group)
        if load is None:
            return
        found.loaded = load.pos
        # What is loaded for a request counts as its own; whose it was, the far side knows.
        found.writer = None
        transfer = self.ctx.fold.transfers.get(str(load["handle"]))
        peers, blocks = load.get("peer") or (), load["blocks"]
        if transfer is None or transfer.far is None or found.block not in blocks:
            return
        found.tier = transfer.far.name
        place = list(blocks).index(found.block)
        if place < len(peers):
            found.peer = peers[place]
            there = self.ctx.fold.slot(transfer.far, peers[place])
            store = self.ctx.moves.store_to([there], group)
            found.stored = store.pos if store else None
            found.writer = self._writer_at(there, group, transfer.far)

    def _writer_at(self, slot: int, group: Group, far: Pool) -> str | None:
        """Whose content a block of a lower tier holds of a group."""
        fold, st = self.ctx.fold, self.ctx.fold.st
        if slot < 0:
            return None
        c = fold.component(slot, fold.declared.mirror(group, far) or group)
        if not filled(fold, slot, c) or st.origin[c] < 0:
            return None
        return str(fold.names.name("req", st.origin[c]))
