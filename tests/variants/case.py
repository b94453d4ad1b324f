"""A case as two lists of events, with the line that a finding must name carried along."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Event = dict[str, Any]

MARK = "~line"
"""Key that carries an event's first line number through the transforms; never written out."""


@dataclass(frozen=True)
class Case:
    """One fault: the trace that shows it, the trace with the fix, what must be found where."""

    id: str
    info: dict[str, Any]
    bad: list[Event]
    good: list[Event]

    @property
    def arms(self) -> tuple[list[Event], list[Event]]:
        return self.bad, self.good

    @property
    def focus(self) -> dict[str, Any]:
        found: dict[str, Any] = self.info.get("focus", {})
        return found

    def each(self, change: Callable[[Event], Event]) -> Case:
        """The case with `change` applied to every event of both arms."""
        return self.both(lambda arm: [change(e) for e in arm])

    def both(self, change: Callable[[list[Event]], list[Event]]) -> Case:
        return replace(self, bad=change(self.bad), good=change(self.good))

    def focused(self, **changes: Any) -> Case:
        return replace(self, info={**self.info, "focus": {**self.focus, **changes}})

    def is_focus(self, event: Event) -> bool:
        return event.get(MARK) == self.focus.get("line")

    def has(self, *names: str) -> bool:
        """Whether an arm holds an event of one of these kinds."""
        return any(e["ev"] in names for arm in self.arms for e in arm)

    @property
    def evidence(self) -> set[str]:
        return set(self.bad[0].get("evidence", ()))


def read_case(folder: Path) -> Case:
    arms = []
    for name in ("bad", "good"):
        lines = (folder / f"{name}.jsonl").read_text().splitlines()
        arms.append([{**json.loads(line), MARK: n} for n, line in enumerate(lines, 1)])
    # Only lines of the faulty arm are pointed at; in the other one the marks tell lines apart.
    return Case(folder.name, json.loads((folder / "case.json").read_text()), *arms)


def read_cases(root: Path) -> list[Case]:
    return [read_case(p.parent) for p in sorted(root.glob("*/case.json"))]


def finished(case: Case) -> Case:
    """The case without marks, its focus line where the focused event now stands."""
    line = next((n for n, e in enumerate(case.bad, 1) if case.is_focus(e)), None)
    plain = case.both(_unmarked)
    return plain.focused(line=line) if "focus" in case.info else plain


def _unmarked(arm: Iterable[Event]) -> list[Event]:
    return [{k: v for k, v in e.items() if k != MARK} for e in arm]


def write_case(case: Case, root: Path) -> Path:
    """Write a finished case the way the corpus is laid out."""
    folder = root / case.id
    folder.mkdir(parents=True, exist_ok=True)
    for name, arm in zip(("bad", "good"), case.arms, strict=True):
        text = "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in arm)
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "case.json").write_text(json.dumps(case.info, indent=1) + "\n")
    return folder
