"""Ways to make a trace smaller: leave out a request, a step, a lane, a block, a value, a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, EVENTS

Data = dict[str, Any]
"""The object of one event."""

UNITS = ("req", "actor", "step", "handle", "event", "graph", "name", "group", "pool")
"""Keys whose value, left out everywhere, makes a smaller trace of the same kind."""

SPARE = ("seq", "ts", "note", "reason", "external", "tenant", "engine", "bytes", "key", "needs")
"""Keys that a finding may not need. A gap in `seq` would read as lost events."""

_NAMES = {"req": "r", "step": "", "handle": "t", "event": "e", "owner": "o", "graph": "g"}
"""Keys whose values are only names, and what the new ones start with; steps are numbers."""

_BESIDE = (
    "hashes", "gens", "values", "peer", "refs", "versions", "written", "owners", "groups", "dst",
)  # fmt: skip


def values(events: Iterable[Data], unit: str) -> list[Any]:
    """Every value of a unit, in order of appearance."""
    found: dict[Any, None] = {}
    for data in events:
        if unit in ("group", "pool") and data["ev"] not in DECLARATIONS:
            continue
        value = _value(data, unit)
        if isinstance(value, (str, int)):
            found[value] = None
        if unit == "req":
            found.update(dict.fromkeys(data.get("reqs", ())))
    return list(found)


def only(events: Sequence[Data], unit: str, kept: Iterable[Any]) -> list[Data]:
    """The events without those of any other value of the unit."""
    keep = set(kept)
    out: list[Data] = []
    for data in events:
        value = _value(data, unit)
        if isinstance(value, (str, int)) and value not in keep:
            continue
        if unit == "req" and "reqs" in data:
            data = {**data, "reqs": [req for req in data["reqs"] if req in keep]}
        if unit == "group":
            data = _only_groups(data, keep)
        out.append(data)
    return out


def without_key(events: Sequence[Data], key: str) -> list[Data]:
    """The events without a key that is optional in all of them; declarations keep theirs."""
    return [
        {k: v for k, v in data.items() if k != key}
        if data["ev"] not in DECLARATIONS and key not in _required(data)
        else data
        for data in events
    ]


def _required(data: Data) -> tuple[str, ...]:
    spec = EVENTS.get(data["ev"])
    return spec.required if spec else ()


def trimmed(data: Data, keep: frozenset[int], block_tokens: int) -> Data | None:
    """The event on the first to the last of its blocks that are in `keep`; None where that is no
    smaller event, or one that cannot be told."""
    key = "src" if data["ev"] == "copy" else "blocks"
    blocks = data.get(key)
    if not isinstance(blocks, list) or len(blocks) < 2:
        return None
    places = [i for i, block in enumerate(blocks) if block in keep]
    if not places:
        return None
    first, last = places[0], places[-1] + 1
    if last - first == len(blocks):
        return None
    out = {**data, key: blocks[first:last]}
    for beside in _BESIDE:
        mate = out.get(beside)
        if isinstance(mate, list) and len(mate) == len(blocks):
            out[beside] = mate[first:last]
    if isinstance(data.get("front"), list):
        out["front"] = [block for block in data["front"] if block in out[key]]
    if "tokens" in data and block_tokens:
        start, end = data["tokens"]
        base = start // block_tokens
        low = max(start, (base + first) * block_tokens)
        out["tokens"] = [low, max(low, min(end, (base + last) * block_tokens))]
    return out


def switches(events: Sequence[Data]) -> int:
    """How often the lane changes from one event to the next."""
    lanes = [Event(0, data["ev"], data).actor for data in events if data["ev"] not in DECLARATIONS]
    return sum(a != b for a, b in pairwise(lanes))


def moved(events: Sequence[Data], index: int) -> Iterator[list[Data]]:
    """The events with the one at `index` right behind the last of its lane, or before the next."""
    lanes = [Event(0, data["ev"], data).actor for data in events]
    before = [i for i in range(index) if lanes[i] == lanes[index]]
    after = [i for i in range(index + 1, len(events)) if lanes[i] == lanes[index]]
    rest = [*events[:index], *events[index + 1 :]]
    if before and before[-1] < index - 1:
        at = before[-1] + 1
        yield [*rest[:at], events[index], *rest[at:]]
    if after and after[0] > index + 1:
        at = after[0] - 1
        yield [*rest[:at], events[index], *rest[at:]]


def renamed(events: Sequence[Data]) -> list[Data]:
    """The events under canonical names: r1, t1, e1, steps 1, 2, ... in order of appearance."""
    known: dict[str, dict[Any, Any]] = {kind: {} for kind in _NAMES}

    def name(kind: str, value: Any) -> Any:
        names, prefix = known[kind], _NAMES[kind]
        if value not in names:
            number = len(names) + 1
            names[value] = f"{prefix}{number}" if prefix else number
        return names[value]

    out: list[Data] = []
    for data in events:
        new = dict(data)
        for key in new:
            if key in _NAMES and isinstance(new[key], (str, int)):
                new[key] = name(key, new[key])
            elif key == "reqs":
                new[key] = [name("req", req) for req in new[key]]
        out.append(new)
    return out


def _value(data: Data, unit: str) -> Any:
    if unit == "actor":
        return None if data["ev"] in DECLARATIONS else Event(0, data["ev"], data).actor
    if unit == "name" and data["ev"] != "buffer":
        return None
    return data.get(unit)


def _only_groups(data: Data, keep: set[Any]) -> Data:
    """Without other groups in the maps that an event has by group."""
    out = data
    for key in ("hit", "blocks", "hashes", "route"):
        value = data.get(key)
        if data["ev"] in ("lookup", "resume") and isinstance(value, Mapping):
            out = {**out, key: {g: v for g, v in value.items() if g in keep}}
    return out
