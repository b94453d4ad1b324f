"""What engines that were recorded apart can be held to: a tier that they share holds one copy of
each block, so they must mean the same bytes by it.

Only declarations are compared. What one engine stored and when another loaded it would have to be
brought into one order, and nothing that is recorded apart tells it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.analyzers.kernel_abi import CARRIED, ORDER, unlike_sides
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.state.declarations import Declarations, Group

CODES = ("HKV201", "HKV203", "HKV204", "HKV205")
"""Rules that are evaluated between instances; of the others each instance is judged alone."""


@dataclass(frozen=True)
class Unlike:
    """A finding in `instance`, against what `other` declared at its event `pos`."""

    instance: str
    other: str
    pos: int
    finding: Finding


def declared_groups(control: Iterable[Event]) -> list[Group]:
    """The groups that a trace declares; declared again, one is what it was declared last."""
    known = Declarations()
    for event in control:
        if event.problem is None and event.ev == "pool":
            known.pool(event)
        elif event.problem is None and event.ev == "group":
            known.group(event)
    return list(known.groups.values())


def between(instances: Mapping[str, Sequence[Group]], shared: frozenset[str]) -> list[Unlike]:
    """Where instances disagree on a group of a pool that they share. Of each group the layout
    that most have is what the others are held to; where it is as many, the first instance's."""
    sides: dict[tuple[str, str], dict[str, list[tuple[str, Group]]]] = {}
    for name, groups in instances.items():
        for group in groups:
            if group.pool.name in shared:
                alike = sides.setdefault((group.pool.name, group.name), {})
                alike.setdefault(_meant(group), []).append((name, group))
    found: list[Unlike] = []
    for alike in sides.values():
        ranked = sorted(alike.values(), key=len, reverse=True)
        other, reference = ranked[0][0]
        for members in ranked[1:]:
            for name, group in members:
                found += _unlike(name, group, other, reference, len(found))
    return found


def _meant(group: Group) -> str:
    carried = {key: value for key, value in group.layout.items() if key in CARRIED}
    return json.dumps([group.block_tokens, group.ratio, carried], sort_keys=True, default=str)


def _unlike(name: str, group: Group, other: str, reference: Group, before: int) -> list[Unlike]:
    found: list[Unlike] = []
    wrong = unlike_sides(reference, group, whole=True)
    for code in ORDER:
        keys = [d for d in wrong if d.code == code]
        if code not in CODES or not keys:
            continue
        said = "; ".join(f"{d.key} {d.producer} there against {d.consumer} here" for d in keys)
        believed: dict[str, Any] = {d.key: d.consumer for d in keys}
        finding = Finding(
            code,
            f"group {group.name} on the shared pool {group.pool.name} is not what {other} means "
            f"by it: {said}",
            [group.pos],
            group=group.name, pool=group.pool.name, believed=believed,
            actual={d.key: d.producer for d in keys}, id=f"B{before + len(found) + 1}",
        )  # fmt: skip
        if found:
            finding.cause = found[0].finding.id
            found[0].finding.caused.append(finding.id)
        found.append(Unlike(name, other, reference.pos, finding))
    return found
