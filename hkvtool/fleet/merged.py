"""The answers of a fleet as one, in the contract of a single check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hkvtool.analyzers import across, between
from hkvtool.analyzers.exchanges import BELOW, DIRECT, Exchanges
from hkvtool.fleet.asking import Outcome
from hkvtool.fleet.spreading import Ask, Spreading, spread_over
from hkvtool.model.findings import Finding, Loss, Ratios, ranked
from hkvtool.model.rules import Severity


class Merged:
    """What was found in all instances, taken in one after the other.

    Findings keep what they say and gain `instance`; their ids, and those they refer to, begin with
    it. A rule is not evaluable where it is so in any instance, and needs what any of them lacks.
    `shared` names pools that are one and the same to every instance that declares them, `DIRECT`
    stands for what goes from device to device, `BELOW` before a name for what lies below pools that
    each has for itself; wall clocks of different machines are at most
    `skew` nanoseconds apart.
    """

    def __init__(
        self, folder: str, shared: frozenset[str] = frozenset(), skew: int = across.SKEW
    ) -> None:
        self.folder = folder
        self.shared = shared
        self.skew = skew
        self._pools: set[str] = set()
        self._groups: dict[str, Sequence[Any]] = {}
        self._exchanged: dict[str, Exchanges] = {}
        self._exports: dict[tuple[str, int], str] = {}
        self.instances: list[dict[str, Any]] = []
        self.findings: list[dict[str, Any]] = []
        self.inconclusive: list[str] = []
        self.ratios = Ratios()
        self.events = 0
        self.summary = Counter({str(severity): 0 for severity in Severity})
        self._needs: dict[str, set[str]] = {}
        self._blind: Counter[str] = Counter()
        self._lost: Counter[tuple[str, str | None]] = Counter()

    def take(self, outcomes: Iterable[Outcome]) -> Merged:
        """Take in what instances came to."""
        for outcome in outcomes:
            self.add(outcome)
        return self

    def add(self, outcome: Outcome) -> None:
        """Take in what one instance came to."""
        instance, report = outcome.instance, outcome.report
        about: dict[str, Any] = {"instance": instance.name, "host": instance.host,
                                 "rank": instance.rank, "time": instance.time}  # fmt: skip
        self.instances.append(about)
        if report is None:
            about |= outcome.said
            return
        about |= {key: value for key, value in report.trace.items() if key != "evidence"}
        self.events += int(report.trace.get("events", 0))
        self.findings += [_of_instance(instance.name, finding) for finding in report.findings]
        self._pools |= outcome.pools
        self._groups[instance.name] = [g for g in outcome.groups if g.pool.name in self.shared]
        if outcome.exchanged is not None:
            self._took(instance.name, outcome.exchanged, report.findings)
        about["findings"] = {str(severity): report.count(severity) for severity in Severity}
        about["ratios"] = {"asked": report.ratios.asked, "matched": report.ratios.matched,
                           "resumable": report.ratios.resumable}  # fmt: skip
        self.summary.update(about["findings"])
        self.inconclusive += [f"{instance.name}: {why}" for why in report.inconclusive]
        for code, needs in report.not_evaluable.items():
            self._needs.setdefault(code, set()).update(needs)
            self._blind[code] += 1
        self.ratios.asked += report.ratios.asked
        self.ratios.matched += report.ratios.matched
        self.ratios.resumable += report.ratios.resumable
        for loss in report.ratios.lost_by:
            self._lost[loss.code, loss.group] += loss.tokens

    @property
    def not_evaluable(self) -> list[dict[str, Any]]:
        """Rules that some instances could not be asked, and in how many."""
        return [
            {"code": code, "needs": sorted(needs), "instances": self._blind[code]}
            for code, needs in sorted(self._needs.items())
        ]

    @property
    def lost_by(self) -> list[Loss]:
        """Tokens that matched and could not be resumed, the most first."""
        return ranked(self._lost)

    def _took(self, name: str, exchanged: Exchanges, findings: Iterable[Finding]) -> None:
        """What an instance exchanged, and which of its exports a finding of its own is about."""
        self._exchanged[name] = exchanged
        exports = {moved.begin.pos for moved in exchanged.moved if moved.out}
        for finding in findings:
            if not finding.cause:
                for pos in exports.intersection(finding.events):
                    self._exports.setdefault((name, pos), finding.id)

    def _held_together(
        self,
    ) -> tuple[list[between.Unlike], across.Across, list[across.Crossing]]:
        """Where declarations differ, what came of the loads, and what is wrong with them."""
        apart = between.between(self._groups, self.shared)
        declared = {(one.finding.code, one.instance, one.finding.group) for one in apart}
        loaded = across.across(self._exchanged, self.skew)
        # What the declarations alone show is not said of every load besides.
        crossing = [
            one for one in loaded.found
            if not {(one.finding.code, one.instance, one.finding.group),
                    (one.finding.code, one.other, one.finding.group)} & declared
        ]  # fmt: skip
        return apart, loaded, crossing

    def spreading(self, ask: Ask) -> Spreading:
        """How far what is wrong goes over the instances, which `ask` is put to."""
        _, loaded, crossing = self._held_together()
        faulty = [about["instance"] for about in self.instances
                  if about.get("findings", {}).get(str(Severity.ERROR))]  # fmt: skip
        return spread_over(self._exchanged, loaded, crossing, faulty, ask)

    def as_json(self) -> dict[str, Any]:
        """One object in the contract of `hkvtool check --format json`."""
        self.ratios.lost_by = self.lost_by
        apart, loaded, crossing = self._held_together()
        both: list[between.Unlike | across.Crossing] = [*apart, *crossing]
        found = [
            {**_of_instance(one.instance, one.finding),
             "against": {"instance": one.other, "event": one.pos}}
            for one in both
        ]  # fmt: skip
        more = [one for one in both if not one.finding.cause]
        summary = self.summary + Counter(str(one.finding.severity) for one in more)
        counted = Counter((one.instance, str(one.finding.severity)) for one in more)
        instances = [_with(about, counted) for about in self.instances]
        below = {name for name in self.shared if name.startswith(BELOW)}
        asked = self.shared & {DIRECT, *self._pools, *(BELOW + name for name in self._pools)}
        tiers = bool(asked - {DIRECT} - below)
        blind = loaded.blind(tiers=tiers) if asked else {}
        rules = sorted({*between.CODES, *across.CODES} - set(blind)) if asked else []
        said: dict[str, Any] = {
            "trace": {"path": self.folder, "events": self.events, "instances": instances},
            "between": {
                "shared": sorted(self.shared - {DIRECT} - below),
                "through": sorted(name.removeprefix(BELOW) for name in below),
                "direct": DIRECT in self.shared,
                "rules": rules,
                "not_evaluable": [
                    {"code": code, "needs": list(needs)} for code, needs in sorted(blind.items())
                ],
                **_counted(loaded),
            },
            "findings": self.findings + found,
            "not_evaluable": self.not_evaluable,
            "inconclusive": [*self.inconclusive, *self._unheard(), *_left_open(loaded)],
            "ratios": self.ratios.as_json(),
            "summary": {str(severity): summary[str(severity)] for severity in Severity},
        }
        self._carry(said["findings"], loaded)
        return said

    def _unheard(self) -> list[str]:
        """A misspelt name compares nothing, which must not look as if nothing was wrong."""
        return [
            f"no instance declares a pool {name}, so nothing was held against anything there"
            for name in sorted(
                {n.removeprefix(BELOW) for n in self.shared - {DIRECT}} - self._pools
            )
        ]

    def _carry(self, findings: list[dict[str, Any]], loaded: across.Across) -> None:
        """A finding about an export names who loaded it: there its consequences are."""
        by_id = {finding["id"]: finding for finding in findings}
        for export, loads in sorted(loaded.carried.items()):
            root = self._exports.get(export)
            finding = by_id.get(f"{export[0]}:{root}") if root else None
            if finding is not None:
                finding.setdefault("loaded_by", []).extend(
                    {"instance": name, "event": pos} for name, pos in sorted(loads)
                )


def _with(about: dict[str, Any], counted: Counter[tuple[str, str]]) -> dict[str, Any]:
    """What is said of an instance, with the findings that it has against others."""
    if "findings" not in about:
        return about
    found = {s: n + counted[about["instance"], s] for s, n in about["findings"].items()}
    return {**about, "findings": found}


def _counted(loaded: across.Across) -> dict[str, Any]:
    """How many blocks were exported and loaded, and what was made of the loads."""
    if not loaded.counts:
        return {}
    kinds = ("exports", "loads", "failed", "right", "wrong", "own", "order open", "unknown origin")
    return {
        "blocks": {kind.replace(" ", "_"): loaded.counts[kind] for kind in kinds},
        "compared": dict(sorted(loaded.compared.items())),
    }


def _left_open(loaded: across.Across) -> list[str]:
    return [
        f"{loader} loaded {count:,} blocks that {exporter} exported; by their clocks it is not "
        "certain that they were there by then"
        for (loader, exporter), count in sorted(loaded.open.items())
    ] + [*_nothing_known(loaded), *_elsewhere(loaded)]


def _nothing_known(loaded: across.Across) -> list[str]:
    """Hashes that none of the others knows mean that nothing was held against anything."""
    counts = loaded.counts
    if not counts["exports"] or not counts["loads"] or counts["unknown origin"] < counts["loads"]:
        return []
    why = (
        f"of {counts['loads']:,} blocks that were loaded none was exported by a recorded engine "
        "under the same hash: they compare where all are recorded with one --hash-key, and have "
        "one block size and one seed of their hashes; a tier that each engine has for itself is "
        "named with --through"
    )
    return [why]


def _elsewhere(loaded: across.Across) -> list[str]:
    return [
        f"{loader} loaded {count:,} blocks under hashes that no recorded engine exported, and what "
        f"came are bytes that {exporter} exported under other hashes: what they are found by lacks "
        "an input (salt, adapter, media), or an engine is missing here"
        for (loader, exporter), count in sorted(loaded.elsewhere.items())
    ]


def _of_instance(name: str, finding: Finding) -> dict[str, Any]:
    """A finding as the contract has it, with the instance that it is of."""
    said = finding.as_json()
    for key in ("id", "cause"):
        if said.get(key):
            said[key] = f"{name}:{said[key]}"
    said["caused"] = [f"{name}:{one}" for one in said["caused"]]
    return {"instance": name, **said}
