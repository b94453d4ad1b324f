"""Whose tokens a request's are: what a read must find follows from this and nothing else.

Two requests share a prefix where one was given the other's content under a hash: it published the
same hash, looked it up, was led to a block by it, or loaded what the other had stored. Which
blocks that content *ought* to be in plays no part, so a read that finds other bytes is a witness
that knows nothing of validation. Hashes of unequal keys are not the same content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold

Key = frozenset[str] | None


class Share(NamedTuple):
    """Tokens up to `end` are those of `origin`, as the hashes of a block table say. A higher
    `rank` is better evidence."""

    rank: int
    end: int
    origin: str
    table: str = ""


class Entry(NamedTuple):
    """What stands under a hash: a prefix of `req`, up to token `end`."""

    key: Key
    req: str
    end: int


class Spot(NamedTuple):
    """Content on a lower tier: tokens [start, end) of a request."""

    req: str
    start: int
    end: int


BY_HASH, BY_BLOCK, BY_PLACE = 3, 2, 1

_ANY = 1 << 40
"""More tokens than any request has."""


class Sequences:
    """Learned from a whole trace, event by event; asked afterwards."""

    def __init__(self) -> None:
        self.shares: dict[str, list[Share]] = {}
        self._hashes: dict[Any, list[Entry]] = {}
        self._led: dict[tuple[str, int], list[tuple[Any, Entry]]] = {}
        self._spots: dict[tuple[str, int], Spot] = {}
        self._filled: dict[tuple[str, int], Spot] = {}
        """What an engine's kernels wrote where another engine may load it from."""
        self._keys: dict[str, Key] = {}
        self._hits: dict[str, int] = {}
        self._unnamed: dict[tuple[str, str], int] = {}
        """Tokens hit, by request and group, where the lookup names neither hashes nor blocks."""

    # --- learning --------------------------------------------------------------------------

    def learn(self, event: Event, fold: Fold) -> None:
        """Take one event into account, which the fold has just taken."""
        learn = _LEARN.get(event.ev)
        if learn is not None:
            learn(self, event, fold)

    def _publish(self, event: Event, fold: Fold) -> None:
        group = fold.group(event["group"])
        req = event.req
        if group is None or req is None:
            return
        key = _key(event)
        blocks, hashes = event["blocks"], event["hashes"]
        for block, name, (_, end) in zip(
            blocks, hashes, self._spans(event, group, fold, blocks), strict=False
        ):
            entry = Entry(key, req, end)
            self._led.setdefault((group.pool.name, block), []).append((name, entry))
            known = self._find(name, key)
            if known is None:
                self._hashes.setdefault(name, []).append(entry)
            else:
                self._share(
                    req, Share(BY_HASH, min(end, known.end), known.req, table_of(fold, group))
                )

    def _lookup(self, event: Event, fold: Fold) -> None:
        req = str(event.req)
        key = self._keys[req] = _key(event)
        self._hits[req] = max([0, *event["hit"].values()])
        for name, hit in event["hit"].items():
            group = fold.group(name)
            if group is None or hit <= 0:
                continue
            table = table_of(fold, group)
            hashes = (event.get("hashes") or {}).get(name) or ()
            found = [entry for entry in (self._find(h, key) for h in hashes) if entry is not None]
            for entry in found:
                self._share(req, Share(BY_HASH, min(hit, entry.end), entry.req, table))
            if not found:
                blocks = (event.get("blocks") or {}).get(name) or ()
                for block in blocks:
                    self._by_block(req, key, group, block, hit, table)
                if not hashes and not blocks:
                    self._unnamed[req, group.name] = hit

    def _by_block(self, req: str, key: Key, group: Group, block: int, hit: int, table: str) -> None:
        led = self._led.get((group.pool.name, block), [])
        if not led:
            return
        name, entry = led[-1]
        if key is not None and entry.key is not None and key != entry.key:
            found = self._find(name, key)
            if found is None:
                return
            entry = found
        self._share(req, Share(BY_BLOCK, min(hit, entry.end), entry.req, table))

    def _touched(self, event: Event, fold: Fold) -> None:
        """What a request takes up behind a hit that named nothing is what it hit."""
        req = str(event.req)
        group = fold.group(event.get("group"))
        hit = None if group is None else self._unnamed.get((req, group.name))
        if group is not None and hit is not None:
            for block in event["blocks"]:
                table = table_of(fold, group)
                self._by_block(req, self._keys.get(req), group, block, hit, table)

    def _stored(self, event: Event, fold: Fold) -> None:
        group = fold.group(event["group"])
        if group is None or "to" not in event:
            return
        peers = event.get("peer") or ()
        spans = self._spans(event, group, fold, event["blocks"])
        for block, peer, span in zip(event["blocks"], peers, spans, strict=False):
            slot = fold.find(group.pool, block)
            req = event.req or (None if slot is None else _owner(fold, slot))
            if req is not None:
                # Of a request that began before the recording nobody says how far it had come.
                known = span[0] >= 0
                spot = Spot(req, *span) if known else Spot(req, -1, self._hits.get(req, _ANY))
                self._spots[str(event["to"]), peer] = spot

    def _written(self, event: Event, fold: Fold) -> None:
        group, req, tokens = fold.group(event["group"]), event.req, event.get("tokens")
        if group is None or req is None or not tokens or group.pool.engine is None:
            return
        unit = group.block_tokens
        for i, block in enumerate(event["blocks"]):
            start = tokens[0] // unit * unit + i * unit
            spot = Spot(req, start, min(start + unit, tokens[1]))
            self._filled[group.pool.name, block] = spot

    def _loaded(self, event: Event, fold: Fold) -> None:
        group = fold.group(event["group"])
        if group is None or event.req is None or "from" not in event:
            return
        key = self._keys.get(event.req)
        pool, table = str(event["from"]), table_of(fold, group)
        spans = self._spans(event, group, fold, event["blocks"])
        for peer, span in zip(event.get("peer") or (), spans, strict=False):
            led = self._led.get((pool, peer))
            if led:
                name, entry = led[-1]
                if key is not None and entry.key is not None and key != entry.key:
                    found = self._find(name, key)
                    if found is None:
                        continue
                    entry = found
                # The tier's own hash tells: but for the tokens that the load is for.
                if entry.end == span[1] or span[0] < 0:
                    self._share(event.req, Share(BY_BLOCK, entry.end, entry.req, table))
                    continue
            self._by_place(event.req, pool, peer, span, table)

    def _by_place(
        self, req: str, pool: str, peer: int, span: tuple[int, int], table: str = ""
    ) -> None:
        spot = self._spots.get((pool, peer)) or self._filled.get((pool, peer))
        if spot is not None and (span[0] < 0 or spot.start in (-1, span[0])):
            end = spot.end if spot.start >= 0 else min(spot.end, self._hits.get(req, _ANY))
            self._share(req, Share(BY_PLACE, end, spot.req, table))

    def _pinned(self, event: Event, fold: Fold) -> None:
        """What is pinned for a request was found for it."""
        owner = event.get("owner")
        _, pool = fold.place(event)
        if owner is None or pool is None or not pool.tier:
            return
        for block in event["blocks"]:
            self._by_place(str(owner), pool.name, block, (-1, -1))

    def _spans(
        self, event: Event, group: Group, fold: Fold, blocks: Iterable[int]
    ) -> Iterator[tuple[int, int]]:
        """The tokens that each block stands for; (-1, -1) where that is unknown."""
        tokens, unit = event.get("tokens"), group.block_tokens
        for i, block in enumerate(blocks):
            if tokens:
                start = tokens[0] // unit * unit + i * unit
                yield start, min(start + unit, tokens[1])
                continue
            slot = fold.find(group.pool, block)
            at = MISSING if slot is None else fold.st.start[slot]
            yield (-1, -1) if at == MISSING else (int(at), int(at) + unit)

    def _find(self, name: Any, key: Key) -> Entry | None:
        entries = self._hashes.get(name, ())
        for entry in entries:
            if key is None or entry.key is None or entry.key == key:
                return entry
        return None

    def _share(self, req: str, share: Share) -> None:
        if share.end <= 0 or share.origin == req or self._leads_to(share.origin, req, share.end):
            return
        mine = self.shares.setdefault(req, [])
        for i, other in enumerate(mine):
            if other._replace(end=share.end) == share:
                if share.end > other.end:
                    mine[i] = share
                return
        mine.append(share)

    def _leads_to(self, start: str, wanted: str, end: int) -> bool:
        seen, todo = {start}, [start]
        while todo:
            name = todo.pop()
            if name == wanted:
                return True
            for share in self.shares.get(name, ()):
                if share.origin not in seen:
                    seen.add(share.origin)
                    todo.append(share.origin)
        return False

    # --- asking ----------------------------------------------------------------------------

    def pieces(self, req: str, start: int, end: int, table: str = "") -> list[tuple[int, int, str]]:
        """[start, end) of a request cut into stretches, each with the request it began as, as the
        hashes of a block table say, else those of any; the nearest one behind a token says best
        whose it is."""
        found: list[tuple[int, int, str]] = []
        at = start
        while at < end:
            best = max(
                (s for s in self.shares.get(req, ()) if s.end > at),
                key=lambda s: (s.table == table, s.rank, -s.end), default=None,
            )  # fmt: skip
            if best is None:
                found.append((at, end, req))
                break
            until = min(end, best.end)
            found += self.pieces(best.origin, at, until, table)
            at = until
        return found


def table_of(fold: Fold, group: Group) -> str:
    """The block table that a group's hashes are of; of a lower tier's copy, the device's."""
    if group.pool.tier:
        for pool in fold.declared.pools.values():
            above = None if pool.tier else fold.declared.mirror(group, pool)
            if above is not None:
                return above.table
    return group.table


def _key(event: Event) -> Key:
    key = event.get("key")
    return None if key is None else frozenset(map(str, key))


def _owner(fold: Fold, slot: int) -> str | None:
    owner = fold.st.owner[slot]
    return None if owner < 0 else str(fold.names.name("req", owner))


def sequence(req: str, branch: int = 0, epoch: int = 0) -> int:
    """A request's sequence as 64 signed bits; `branch` counts what was rejected and written
    again, `epoch` the weights."""
    text = f"{len(req)}:{req}/{branch}/{epoch}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


_LEARN: dict[str, Any] = {
    "publish": Sequences._publish,
    "lookup": Sequences._lookup,
    "store_begin": Sequences._stored,
    "load_begin": Sequences._loaded,
    "pin": Sequences._pinned,
    "touch": Sequences._touched,
    "write": Sequences._written,
    "seal": Sequences._written,
}
