"""How far a wrong read spreads: what was computed from it, who read that, and where it lies now.

A request that read wrong bytes writes wrong ones from there on; who reads those is wrong as well,
and a copy of them is as bad as they are. The fold gives every content an id that copies and
transfers keep, so spreading is a matter of ids. Every bad content carries the root finding that it
follows from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state.moves import copy_slots
from hkvtool.state.serving import filled, live_entries

WRONG_READ = frozenset(
    f"HKV{n}" for n in (
        101, 102, 103, 104, 105, 301, 302, 303, 304, 305, 306, 307, 601, 602, 603, 604,
        701, 702, 703, 705, 706, 707, 708, 709, 801, 802, 803, 804,
    )
)  # fmt: skip
"""Rules whose findings mean that a request read bytes that were not its own."""

BAD_HASH = frozenset({"HKV101", "HKV103", "HKV104", "HKV105", "HKV301", "HKV304", "HKV307"})
"""Rules that say of a hash that it leads to what it does not stand for."""

BAD_CONTENT = frozenset({"HKV604", "HKV703", "HKV708", "HKV709", "HKV802", "HKV906"})
"""Rules that say of the blocks themselves that their bytes are destroyed."""

CONTENTS = 1 << 17
"""Contents whose readers are remembered; those that were read longest ago go first."""

STORES = 4096
"""Stores whose content is remembered, in case it turns out to have been overwritten."""

_WRITES = frozenset({"write", "seal", "index"})


@dataclass(slots=True)
class Copy:
    """Bad content that went to another pool."""

    pos: int
    pool: str
    medium: str
    blocks: list[int]
    hashes: list[str]

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Spread:
    """What followed from one root finding.

    `readers` maps each request that read bad content to where it first did, the one that the
    finding is about left out; `victims` are those with a finding of their own.
    """

    root: str
    victims: dict[str, int] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    blocks: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """Blocks that hold bad content at the end of the trace, by pool and medium."""
    hashes: dict[str, None] = field(default_factory=dict)
    """Hashes that lead to bad content, or promise what is not there, in order of sight."""
    offered: dict[str, None] = field(default_factory=dict)
    """Hashes that led to bad content at any time, so that others may have loaded it."""

    def as_json(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "requests": [
                {"request": name, "first_read": pos}
                for name, pos in sorted((self.victims | self.readers).items(), key=lambda i: i[1])
            ],
            "copies": [copy.as_json() for copy in self.copies],
            "purge": {
                "hashes": list(self.hashes),
                "blocks": [
                    {"pool": pool, "medium": medium, "blocks": sorted(blocks)}
                    for (pool, medium), blocks in sorted(self.blocks.items())
                ],
            },
        }


def victims(ctx: Context, finding: Finding, event: Event | None = None) -> list[str]:
    """Who got wrong bytes: of an overwrite under a reader, the reader; where no request is named,
    those of the step."""
    if finding.code == "HKV702":
        if event is not None and event.ev in ("use", "copy"):
            return [] if event.req is None else [event.req]
        reader = finding.actual.get("by")
        return [] if reader is None else [str(reader)]
    if finding.request is not None:
        return [finding.request]
    if finding.step is not None:
        return sorted(ctx.step_reqs.get(finding.step, ()))
    return []


class Taint(Silent):
    """Watches for findings, and follows what they make bad."""

    def __init__(self, ctx: Context, charged: frozenset[str] = frozenset()) -> None:
        super().__init__(ctx)
        self.charged = charged
        """Findings from outside the trace: the blocks that they name hold bad content."""
        self.spreads: dict[str, Spread] = {}
        self.contents: dict[int, str] = {}
        """Bad contents by id, each with the root finding it follows from."""
        self.requests: dict[str, str] = {}
        """Requests that compute from bad content, with that root."""
        self._met = 0
        self._under: dict[int, str] = {}
        self._readers: dict[int, dict[str, int]] = {}
        """Who read the latest contents, and where first: a finding may come to light later."""
        self._stored: dict[int, tuple[list[int], Copy]] = {}
        """Contents that the latest stores took, by where they began."""

    def before(self, event: Event) -> None:
        ev = event.ev
        if ev == "store_begin":
            self._take(event)
        elif ev == "use" and event.req is not None and not event.get("pad"):
            self._remember(event, event.req)
        if not self.spreads:
            return
        if ev == "use" and not event.get("pad"):
            self._read(event)
        elif ev == "resume":
            self._resume(event)
        elif ev in ("store_begin", "load_begin"):
            self._moved(event)
        elif ev in _WRITES:
            self._under = self._bad_under(event)

    def after(self, event: Event) -> None:
        if event.ev in ("lookup", "preempt", "abort", "finish") and event.req is not None:
            # It starts anew, or is over.
            self.requests.pop(event.req, None)
        findings = self.ctx.findings
        while self._met < len(findings):
            self._seed(findings[self._met], event)
            self._met += 1
        if not self.spreads:
            return
        if event.ev in _WRITES:
            self._written(event)
        elif event.ev == "publish":
            self._published(event)
        elif event.ev == "copy":
            self._copied(event)

    def finish(self) -> None:
        while self._met < len(self.ctx.findings):
            self._seed(self.ctx.findings[self._met], None)
            self._met += 1
        fold, st = self.ctx.fold, self.ctx.fold.st
        groups = list(fold.declared.groups.values())
        for slot in range(len(fold.block_of)):
            pool = fold.pool_of(slot)
            for group in groups:
                if group.pool is not pool:
                    continue
                c = fold.component(slot, group)
                root = self.contents.get(st.cid[c]) if filled(fold, slot, c) else None
                if root is not None:
                    spread = self.spreads[root]
                    place = (pool.name, pool.medium)
                    spread.blocks.setdefault(place, set()).add(fold.block_of[slot])
                    self._hashes(spread, slot)

    # --- where it begins ---------------------------------------------------------------------

    def _seed(self, finding: Finding, event: Event | None) -> None:
        telling = finding.code in WRONG_READ | BAD_CONTENT or finding.id in self.charged
        if finding.severity is not Severity.ERROR or not telling:
            return
        root = finding.cause or finding.id
        spread = self.spreads.setdefault(root, Spread(root))
        at = finding.use or finding.check or max(finding.events, default=0)
        stores = {finding.check, finding.use} & self._stored.keys()
        if finding.code == "HKV702" and stores:
            # What a store took while it was overwritten is bad wherever it went.
            for pos in stores:
                taken, copy = self._stored[pos or 0]
                self.contents.update((cid, root) for cid in taken)
                if copy not in spread.copies:
                    spread.copies.append(copy)
        else:
            for victim in victims(self.ctx, finding, event):
                spread.victims.setdefault(victim, at)
                if event is not None:
                    self.requests.setdefault(victim, root)
        pool = self.ctx.fold.declared.pools.get(str(finding.pool))
        group = self.ctx.fold.group(finding.group)
        if pool is None or group is None:
            return
        st = self.ctx.fold.st
        for block in finding.blocks:
            slot = self.ctx.fold.find(pool, block)
            if slot is None:
                continue
            if finding.code in BAD_HASH:
                self._hashes(spread, slot)
            if group.pool is pool and (finding.code in BAD_CONTENT or finding.id in self.charged):
                c = self.ctx.fold.component(slot, group)
                if filled(self.ctx.fold, slot, c):
                    self._condemn(int(st.cid[c]), root, finding.check or 0)
                    self._offer(spread, slot)

    def _condemn(self, content: int, root: str, since: int) -> None:
        """A content is bad, and was for those who read it since the first telling event."""
        self.contents.setdefault(content, root)
        for request, pos in self._readers.get(content, {}).items():
            if pos > since:
                self._reads(request, root, pos)

    def _hashes(self, spread: Spread, slot: int) -> None:
        fold = self.ctx.fold
        for entry in live_entries(fold, slot):
            spread.hashes[str(fold.names.name("hash", fold.st.e_hash[entry]))] = None

    def _offer(self, spread: Spread, slot: int) -> None:
        fold = self.ctx.fold
        for entry in live_entries(fold, slot):
            spread.offered[str(fold.names.name("hash", fold.st.e_hash[entry]))] = None

    def _published(self, event: Event) -> None:
        """Bad content gets a hash."""
        for slot in self.ctx.slots(event):
            root = self._bad(slot, event)
            if root is not None:
                self._offer(self.spreads[root], slot)

    def _remember(self, event: Event, request: str) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        fold, st = self.ctx.fold, self.ctx.fold.st
        for slot in self.ctx.slots(event):
            c = fold.component(slot, group) if slot >= 0 else -1
            if c < 0 or not filled(fold, slot, c):
                continue
            readers = self._readers.pop(int(st.cid[c]), {})
            readers.setdefault(request, event.pos)
            self._readers[int(st.cid[c])] = readers
        while len(self._readers) > CONTENTS:
            del self._readers[next(iter(self._readers))]

    def _take(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        fold, st = self.ctx.fold, self.ctx.fold.st
        taken = [fold.component(s, group) for s in self.ctx.slots(event) if s >= 0]
        copy = _copy(self.ctx, event)
        copy.blocks += event.get("peer") or ()
        copy.hashes += map(str, event.get("hashes") or ())
        self._stored[event.pos] = [int(st.cid[c]) for c in taken if st.cid[c] > 0], copy
        if len(self._stored) > STORES:
            del self._stored[next(iter(self._stored))]

    # --- how it spreads ----------------------------------------------------------------------

    def _bad(self, slot: int, event: Event) -> str | None:
        """The root of what is bad in one block, for the group that an event names."""
        group = self.ctx.fold.group(event.get("group"))
        if slot < 0 or group is None:
            return None
        c = self.ctx.fold.component(slot, group)
        if not filled(self.ctx.fold, slot, c):
            return None
        return self.contents.get(int(self.ctx.fold.st.cid[c]))

    def _read(self, event: Event) -> None:
        if event.req is None:
            return
        for slot in self.ctx.slots(event):
            root = self._bad(slot, event)
            if root is not None:
                self._reads(event.req, root, event.pos)

    def _resume(self, event: Event) -> None:
        """What a resume takes will be read, whether or not the trace lists the uses."""
        if event.req is None:
            return
        routes = event.get("route") or {}
        for name, blocks in (event.get("blocks") or {}).items():
            group = self.ctx.fold.group(name)
            if group is None or routes.get(name) in ("recompute", "bypass"):
                continue
            for block in blocks:
                slot = self.ctx.fold.slot(group.pool, block)
                c = self.ctx.fold.component(slot, group) if slot >= 0 else -1
                if c >= 0 and filled(self.ctx.fold, slot, c):
                    root = self.contents.get(int(self.ctx.fold.st.cid[c]))
                    if root is not None:
                        self._reads(event.req, root, event.pos)

    def _reads(self, request: str, root: str, pos: int) -> None:
        spread = self.spreads[root]
        if request not in spread.victims:
            spread.readers.setdefault(request, pos)
        self.requests.setdefault(request, root)

    def _bad_under(self, event: Event) -> dict[int, str]:
        """Bad content in the blocks that a write is about to touch, which it may not cover."""
        found: dict[int, str] = {}
        for slot in self.ctx.slots(event):
            root = self._bad(slot, event)
            if root is not None:
                found[slot] = root
        return found

    def _written(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        under, self._under = self._under, {}
        if group is None:
            return
        fold, st = self.ctx.fold, self.ctx.fold.st
        for slot in self.ctx.slots(event):
            if slot < 0:
                continue
            c = fold.component(slot, group)
            if not filled(fold, slot, c) or st.wpos[c] != event.pos:
                continue
            root = self.requests.get(self._writer(event, slot) or "")
            if root is None and not self._covers(event, c):
                root = under.get(slot)
            if root is not None:
                self.contents[int(st.cid[c])] = root
                self._offer(self.spreads[root], slot)

    def _writer(self, event: Event, slot: int) -> str | None:
        if event.req is not None:
            return event.req
        owner = self.ctx.fold.st.owner[slot]
        return None if owner < 0 else str(self.ctx.fold.names.name("req", owner))

    def _covers(self, event: Event, c: int) -> bool:
        """Whether a write leaves nothing of what stood in the block."""
        tokens, st = event.get("tokens"), self.ctx.fold.st
        return bool(tokens and tokens[0] <= st.lo[c] and st.hi[c] <= tokens[1])

    def _copied(self, event: Event) -> None:
        """A copy takes the id of its source along; what is bad about it is bad there too."""
        for slot in copy_slots(self.ctx.fold, event)[1]:
            self._note_copy(slot, event, [])

    def _note_copy(self, slot: int, event: Event, hashes: list[str]) -> None:
        if slot < 0:
            return
        fold = self.ctx.fold
        for group in fold.declared.groups.values():
            c = fold.component(slot, group)
            if group.pool is fold.pool_of(slot) and filled(fold, slot, c):
                root = self.contents.get(int(fold.st.cid[c]))
                if root is not None:
                    pool = fold.pool_of(slot)
                    self.spreads[root].copies.append(
                        Copy(event.pos, pool.name, pool.medium, [fold.block_of[slot]], hashes)
                    )

    def _moved(self, event: Event) -> None:
        """Bad content goes to, or comes from, a lower tier."""
        if event.ev != "store_begin":
            return
        peers, hashes = event.get("peer") or (), event.get("hashes") or ()
        taken: dict[str, Copy] = {}
        for i, slot in enumerate(self.ctx.slots(event)):
            root = self._bad(slot, event)
            if root is None:
                continue
            copy = taken.setdefault(root, _copy(self.ctx, event))
            if i < len(peers):
                copy.blocks.append(peers[i])
            if i < len(hashes):
                copy.hashes.append(str(hashes[i]))
                self.spreads[root].hashes[str(hashes[i])] = None
        for root, copy in taken.items():
            self.spreads[root].copies.append(copy)


def _copy(ctx: Context, store: Event) -> Copy:
    """Where a store goes, nothing of it yet."""
    pool = ctx.fold.declared.pools.get(str(store.get("to")))
    if pool is None:
        return Copy(store.pos, str(store.get("to", "elsewhere")), "remote", [], [])
    return Copy(store.pos, pool.name, pool.medium, [], [])
