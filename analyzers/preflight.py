"""The static rules alone: what can be said of an engine before its first request.

Producers declare groups, consumers what they expect of them; everything that follows from the two
is 2xx and 4xx. What only one side states cannot be compared, and is listed: silence is no pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.check import check
from hkvtool.analyzers.kernel_abi import CARRIED
from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.findings import Report
from hkvtool.model.layout import RULE_OF_KEY
from hkvtool.state.fold import Fold

KINDS = frozenset({"trace", "pool", "group", "kernel", "limits"})
"""Events that declare what exists before anything happens."""

ALIGNMENT = frozenset({"base", "offset", "stride_bytes", "align", "region_bytes", "page_bytes"})
"""Layout keys that the rules of alignment ask of a group itself."""

_OF_GROUP = ("block_tokens", "ratio")


@dataclass(slots=True)
class Pairing:
    """One group and what was compared of it with one consumer (`kernel` None: it has none)."""

    group: str
    kernel: str | None
    compared: list[str] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    """Keys without which the group's own alignment cannot be told."""

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Preflight:
    """What the static rules say, and what they could compare."""

    report: Report
    pairings: list[Pairing]

    def as_json(self) -> dict[str, Any]:
        said = self.report.as_json()
        del said["ratios"]
        return {**said, "compared": [p.as_json() for p in self.pairings]}


def preflight(events: Iterable[Event]) -> Preflight:
    """Judge the declarations among `events`. Raises TraceError where there are none."""
    declared = [e for e in events if e.ev in KINDS or e.problem is not None]
    groups = [e for e in declared if e.ev == "group" and e.problem is None]
    if not groups:
        raise TraceError(
            "no cache group is declared here",
            hint="preflight wants `pool`, `group` and `kernel` events; see docs/checking.md",
        )
    evidence = Evidence()
    # What is declared is what there is to judge, whatever else the recorder saw.
    evidence.see(Event.of(0, {"ev": "trace", "format": "hkv/1", "evidence": ["layout"]}))
    report = check([*declared, *_tiers(declared)], evidence)
    report.trace["events"] = len(declared)
    report.keep(lambda f: f.code[3] in "24" or f.code == "HKV905")
    report.not_evaluable = {}
    return Preflight(report, _pairings(declared))


def _tiers(declared: Sequence[Event]) -> list[Event]:
    """Each lower tier as a consumer of what a device group will send it, at the position of the
    tier's group: what a transfer between them would show later."""
    fold = Fold()
    for event in declared:
        fold.apply(event)
    found: list[Event] = []
    groups = list(fold.declared.groups.values())
    for group in groups:
        if group.pool.tier or not group.layout:
            continue
        for pool in {g.pool.name: g.pool for g in groups if g.pool.tier}.values():
            there = fold.declared.mirror(group, pool)
            if there is None or not there.layout or pool.engine != group.pool.engine:
                continue
            expects = {k: v for k, v in there.layout.items() if k in CARRIED}
            told = {"ev": "kernel", "kernel": f"{there.name} on {pool.name}", "group": group.name,
                    "expects": {**expects, "ratio": there.ratio}}  # fmt: skip
            found.append(Event.of(there.pos, told))
    return found


def _pairings(declared: Sequence[Event]) -> list[Pairing]:
    kernels: dict[str, list[Event]] = {}
    groups: dict[str, Event] = {}
    for event in declared:
        if event.problem is None and event.ev == "group":
            groups[str(event["group"])] = event
        elif event.problem is None and event.ev == "kernel":
            kernels.setdefault(str(event["group"]), []).append(event)
    found: list[Pairing] = []
    for name, group in groups.items():
        layout = group.get("layout") or {}
        produced = {*layout, *_OF_GROUP}
        lacking = sorted(ALIGNMENT - layout.keys() - {"base", "offset"})
        for kernel in kernels.get(name, []):
            expects: Mapping[str, Any] = kernel["expects"]
            wanted = {k for k in expects if k in RULE_OF_KEY}
            both = {k for k in wanted if k in produced or k == "kernel_block_tokens"}
            ours = {k for k in layout if k in RULE_OF_KEY}
            found.append(
                Pairing(name, str(kernel["kernel"]), sorted(both), sorted((wanted | ours) - both),
                        lacking)
            )  # fmt: skip
        if name not in kernels and group.get("participates", True):
            found.append(Pairing(name, None, [], sorted(k for k in layout if k in RULE_OF_KEY),
                                 lacking))  # fmt: skip
    return found


def config_events(config: Mapping[str, Any]) -> list[Event]:
    """The declarations of a configuration: ``{"pools": [...], "groups": [...], "kernels": [...]}``,
    each with the keys of its event. Raises TraceError where it is none."""
    data: list[dict[str, Any]] = [{"ev": "trace", "format": "hkv/1"}]
    for kind in ("pool", "group", "kernel", "limits"):
        key = kind if kind == "limits" else f"{kind}s"
        listed = config.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise TraceError(f"`{key}` is no list of objects")
        data += [{**one, "ev": kind} for one in listed]
    return [Event.of(n, one) for n, one in enumerate(data, 1)]
