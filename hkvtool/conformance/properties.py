"""The four layers and the four constraints, each as a property that a run holds or breaks.

A property is a family of rules: what breaks it is a finding of `hkvtool check`, so an allocator
is held to the very rules that a recorded engine is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hkvtool.analyzers.check import check
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES, Severity
from hkvtool.store.derive_reads import derive_reads

PROPERTIES: dict[str, str] = {
    "whole block": "1",
    "kernel ABI": "2",
    "group intersection": "3",
    "alignment": "4",
    "admission": "5",
    "form routing": "6",
    "check and use": "7",
    "static topology": "8",
    "evidence": "9",
}
"""Layers, constraints and the integrity of the evidence, by the first digit of their rules."""

VETO = "HKV308"
"""Matched tokens that one group could not resume: what a hybrid allocator is right to say."""


@dataclass(frozen=True)
class Verdict:
    """Of one property: what broke it, and which of its rules the events say nothing about."""

    name: str
    broken: tuple[Finding, ...]
    silent: Mapping[str, tuple[str, ...]]
    """Rules that were not evaluable, with the evidence that they need."""

    @property
    def holds(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        if self.holds:
            return f"{self.name}: holds"
        found = "\n".join(
            f"  {f.code} {RULES[f.code].name}: {f.message} (events {', '.join(map(str, f.events))})"
            for f in self.broken
        )
        return f"{self.name}: broken\n{found}"


def judge(
    events: Iterable[Mapping[str, Any]], but: Collection[str] = (VETO,)
) -> dict[str, Verdict]:
    """Each property of a run, given as its `hkv/1` events. Findings that follow from another one
    are left out, `but` those rules that are no fault here, and what only costs something."""
    told = (Event.of(pos, dict(data)) for pos, data in enumerate(events, 1))
    report = check(derive_reads(told))
    roots = [
        f for f in report.findings
        if not f.cause and f.code not in but and f.severity is Severity.ERROR
    ]  # fmt: skip
    return {
        name: Verdict(
            name,
            tuple(f for f in roots if f.code[3] == digit),
            {code: needs for code, needs in report.not_evaluable.items() if code[3] == digit},
        )
        for name, digit in PROPERTIES.items()
    }
