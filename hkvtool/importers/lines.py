"""Published KV events as lines of a trace, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from hkvtool.importers.kv_events import KvEvent

Line = dict[str, Any]

_MOST_HELD = 4 << 20
"""Hashes that are followed for the account at the end; the trace has all of them."""

_REASON = 240


class Names(Protocol):
    """Names that reveal nothing, for hashes and for text: what stands in the trace for them."""

    def hash(self, digest: bytes) -> int: ...

    def text(self, value: str) -> str: ...


def declaration(evidence: list[str], note: str, engine: str | None = None) -> Line:
    """The first line of a trace."""
    named = {} if engine is None else {"engine": engine}
    return {"ev": "trace", "format": "hkv/1", **named, "evidence": evidence, "note": note}


def unread(offset: int, problem: str, *, count: int = 1, **keys: Any) -> Line:
    """In place of what could not be read: so much is missing here, and where it stands."""
    reason = f"offset {offset:,}: {problem}"[:_REASON]
    return {"ev": "dropped", "count": count, "reason": reason, **keys}


@dataclass
class Held:
    """What one publisher's events of one group and medium add up to. A hash may lead to several
    blocks, each stored and removed on its own, so copies are counted."""

    stored: int = 0
    removed: int = 0
    unknown: int = 0
    """Removals of what was never seen stored: it was there before."""
    hashes: dict[int, int] = field(default_factory=dict)


Place = tuple[str, str, str]
"""Lane, group and medium."""


class WireLines:
    """Turns KV events into `wire` lines of a trace, and keeps account of them."""

    def __init__(self, names: Names, *, lane: str = "recv") -> None:
        self._names = names
        self._lane = lane
        self.held: dict[Place, Held] = {}
        self.kinds: Counter[str] = Counter()
        self.unread = 0
        self.grouped = 0
        """Events that named a group."""
        self._described: set[tuple[str, str]] = set()

    def line(self, actor: str, event: KvEvent, wseq: int | None, **beside: Any) -> Line:
        """The line of one event. What it says of its group stands in the first of the group."""
        told: Line = {"ev": "wire", "kind": event.kind, "lane": self._lane, "actor": actor}
        if wseq is not None:
            told["wseq"] = wseq
        if event.group is not None:
            # A lower tier's copies are a group of their own, as everywhere in a trace.
            low = event.medium not in (None, "gpu")
            told["group"] = f"{event.group}@{event.medium}" if low else event.group
            self.grouped += 1
        hashes = [self._names.hash(h) for h in event.hashes]
        if event.kind != "cleared":
            told["hashes"] = hashes
        if event.medium is not None:
            told["medium"] = event.medium
        if event.parent is not None:
            told["parent"] = self._names.hash(event.parent)
        place = (actor, event.group or "")
        if event.kind == "stored" and place not in self._described:
            self._described.add(place)
            told.update(event.facts)
        elif "tier" in event.facts:
            told["tier"] = event.facts["tier"]
        told.update(beside)
        self.kinds[event.kind] += 1
        self._account(actor, event, hashes)
        return told

    def unread_line(self, actor: str, offset: int, problem: str, **beside: Any) -> Line:
        """The line in place of something that could not be read."""
        self.unread += beside.get("count", 1)
        return unread(offset, problem, actor=actor, **beside)

    def restart(self, actor: str, wseq: int | None) -> Line:
        """The line that says that a publisher was started anew: what it held is gone."""
        for (lane, _, _), held in self.held.items():
            if lane == actor:
                held.hashes.clear()
        numbered = {} if wseq is None else {"wseq": wseq}
        return {
            "ev": "wire",
            "kind": "cleared",
            "lane": self._lane,
            "actor": actor,
            **numbered,
            "reason": "the publisher was started anew",
        }

    def rows(self) -> Iterator[tuple[str, str, str, int, int, int, int]]:
        """Lane, group, medium; hashes stored, removed, held now, removed without being seen."""
        for (lane, group, medium), held in sorted(self.held.items()):
            yield lane, group, medium, held.stored, held.removed, len(held.hashes), held.unknown

    def _account(self, actor: str, event: KvEvent, hashes: list[int]) -> None:
        if event.kind == "cleared":
            for (lane, group, medium), held in self.held.items():
                if (
                    lane == actor
                    and event.group in (None, group)
                    and event.medium in (None, medium)
                ):
                    held.hashes.clear()
            return
        place = (actor, event.group or "", event.medium or "")
        held = self.held.setdefault(place, Held())
        if event.kind == "stored":
            held.stored += len(hashes)
            if len(held.hashes) < _MOST_HELD:
                for name in hashes:
                    held.hashes[name] = held.hashes.get(name, 0) + 1
            return
        held.removed += len(hashes)
        for name in hashes:
            copies = held.hashes.pop(name, 0)
            held.unknown += copies == 0
            if copies > 1:
                held.hashes[name] = copies - 1
