"""How far a fault goes over engines: who loaded it, who read that, and what to purge where.

What engines loaded wrongly from one another, and what each found wrong about its own exports, is
where it begins. In each instance it is followed as in a single trace; what others loaded of what
became bad there is followed on in them, until nothing more comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.across import Across, Crossing, Side
from hkvtool.analyzers.charges import loaded_of, spreads
from hkvtool.analyzers.exchanges import Exchanges
from hkvtool.analyzers.taint import Spread
from hkvtool.fleet.instances import Instance, open_instance
from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding

Root = tuple[str, str]
"""An instance, and a finding of its own, or of its loads, that others follow from."""

Charged = dict[str, list[Finding]]
"""Findings about the loads of instances, by instance."""


@dataclass(frozen=True)
class SpreadAsked:
    """The question how far what is wrong has spread in one instance; None where it cannot be
    read any more."""

    charges: Mapping[str, Sequence[Finding]]

    def __call__(self, instance: Instance) -> dict[str, Spread] | None:
        try:
            with open_instance(instance.path) as trace:
                return spreads(trace.events(), self.charges.get(instance.name, ()))
        except (HkvError, MemoryError):
            return None


Ask = Callable[[SpreadAsked, Sequence[str]], Iterable[dict[str, Spread] | None]]
"""Asks instances of these names, and gives the answers in their order."""


@dataclass
class Spreading:
    """What was charged with what, and where it comes from in the end."""

    exchanged: Mapping[str, Exchanges]
    charges: Charged = field(default_factory=dict)
    roots: dict[Root, Root] = field(default_factory=dict)
    """Of findings about loads, what they follow from in another instance."""
    found: dict[str, dict[str, Spread]] = field(default_factory=dict)

    def root(self, instance: str, finding: str) -> Root:
        """Where it begins, through whatever instances."""
        at, seen = (instance, finding), set[Root]()
        while at in self.roots and at not in seen:
            seen.add(at)
            at = self.roots[at]
        return at

    def of(self, root: Root) -> list[dict[str, Any]]:
        """All that follows from one beginning, instance by instance."""
        told = []
        for name, by_root in sorted(self.found.items()):
            mine = [s for one, s in by_root.items() if self.root(name, one) == root]
            loads = [f for f in self.charges.get(name, ()) if self.root(name, f.id) == root]
            if mine:
                told.append(_told(name, mine, loads))
        return told


def _told(name: str, mine: Sequence[Spread], loads: Sequence[Finding]) -> dict[str, Any]:
    parts = [one.as_json() for one in mine]
    requests: dict[str, int] = {}
    blocks: dict[tuple[str, str], set[int]] = {}
    for part in parts:
        for one in part["requests"]:
            requests.setdefault(one["request"], one["first_read"])
        for one in part["purge"]["blocks"]:
            blocks.setdefault((one["pool"], one["medium"]), set()).update(one["blocks"])
    return {
        "instance": name,
        "loaded": [
            {
                "id": f"{name}:{f.id}",
                "event": f.use,
                "request": f.request,
                "tokens": list(f.tokens) if f.tokens else None,
                "message": f.message,
            }
            for f in loads
        ],
        "requests": [{"request": r, "first_read": pos} for r, pos in requests.items()],
        "copies": [copy for part in parts for copy in part["copies"]],
        "purge": {
            "hashes": list(dict.fromkeys(h for part in parts for h in part["purge"]["hashes"])),
            "blocks": [
                {"pool": pool, "medium": medium, "blocks": sorted(held)}
                for (pool, medium), held in sorted(blocks.items())
            ],
        },
    }


def spread_over(
    exchanged: Mapping[str, Exchanges], loaded: Across, crossings: Iterable[Crossing],
    faulty: Iterable[str], ask: Ask,
) -> Spreading:  # fmt: skip
    """Follow what was loaded wrongly (`crossings`) and what is wrong in the `faulty` instances
    themselves through all instances."""
    spreading = Spreading(exchanged)
    alike: dict[tuple[str, str, int], Root] = {}
    for one in crossings:
        spreading.charges.setdefault(one.instance, []).append(one.finding)
        own = one.instance, one.finding.cause or one.finding.id
        # Whoever loaded the same thing wrongly follows from the same beginning.
        first = alike.setdefault((one.finding.code, *one.export), own)
        if own != first and own not in spreading.roots:
            spreading.roots[own] = first
    todo = {*spreading.charges, *faulty}
    judged: set[tuple[str, str]] = set()
    while todo:
        names = sorted(todo)
        todo = set()
        for name, answer in zip(names, ask(SpreadAsked(spreading.charges), names), strict=True):
            spreading.found[name] = answer or {}
            for root, spread in spreading.found[name].items():
                todo |= _onward(spreading, loaded, (name, root), spread, judged)
    return spreading


def _onward(
    spreading: Spreading, loaded: Across, root: Root, spread: Spread, judged: set[tuple[str, str]]
) -> set[str]:
    """Charge others with what they loaded of it; says whom."""
    loads: dict[tuple[str, int], list[Side]] = {}
    for name in (*spread.offered, *(h for copy in spread.copies for h in copy.hashes)):
        if (root[0], name) not in judged:
            judged.add((root[0], name))
            for load in loaded.came.get((root[0], name), ()):
                loads.setdefault((load.instance, load.moved.begin.pos), []).append(load)
    for (instance, _), sides in loads.items():
        known = spreading.charges.setdefault(instance, [])
        group = spreading.exchanged[instance].groups[sides[0].moved.group]
        finding = loaded_of(root, sides, f"Y{len(known) + 1}", group.pool.name)
        known.append(finding)
        spreading.roots[instance, finding.id] = root
    return {instance for instance, _ in loads}
