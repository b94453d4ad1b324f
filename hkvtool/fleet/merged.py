"""The answers of a fleet as one, in the contract of a single check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hkvtool.analyzers.between import CODES, between
from hkvtool.fleet.asking import Outcome
from hkvtool.model.findings import Finding, Loss, Ratios
from hkvtool.model.rules import Severity


class Merged:
    """What was found in all instances, taken in one after the other.

    Findings keep what they say and gain `instance`; their ids, and those they refer to, begin with
    it. A rule is not evaluable where it is so in any instance, and needs what any of them lacks.
    `shared` names pools that are one and the same to every instance that declares them.
    """

    def __init__(self, folder: str, shared: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        self.shared = shared
        self._groups: dict[str, Sequence[Any]] = {}
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
            about["error"] = outcome.error
            return
        about |= {key: value for key, value in report.trace.items() if key != "evidence"}
        self.events += int(report.trace.get("events", 0))
        self.findings += [_of_instance(instance.name, finding) for finding in report.findings]
        self._groups[instance.name] = [g for g in outcome.groups if g.pool.name in self.shared]
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
        ranked = sorted(self._lost.items(), key=lambda item: (-item[1], item[0][0], str(item[0])))
        return [Loss(code, group, tokens) for (code, group), tokens in ranked]

    def as_json(self) -> dict[str, Any]:
        """One object in the contract of `hkvtool check --format json`."""
        self.ratios.lost_by = self.lost_by
        apart = between(self._groups, self.shared)
        found = [
            {**_of_instance(one.instance, one.finding),
             "against": {"instance": one.other, "event": one.pos}}
            for one in apart
        ]  # fmt: skip
        summary = self.summary + Counter(
            str(one.finding.severity) for one in apart if not one.finding.cause
        )
        return {
            "trace": {"path": self.folder, "events": self.events, "instances": self.instances},
            "between": {"shared": sorted(self.shared), "rules": list(CODES if self.shared else ())},
            "findings": self.findings + found,
            "not_evaluable": self.not_evaluable,
            "inconclusive": self.inconclusive,
            "ratios": self.ratios.as_json(),
            "summary": {str(severity): summary[str(severity)] for severity in Severity},
        }


def _of_instance(name: str, finding: Finding) -> dict[str, Any]:
    """A finding as the contract has it, with the instance that it is of."""
    said = finding.as_json()
    for key in ("id", "cause"):
        if said.get(key):
            said[key] = f"{name}:{said[key]}"
    said["caused"] = [f"{name}:{one}" for one in said["caused"]]
    return {"instance": name, **said}
