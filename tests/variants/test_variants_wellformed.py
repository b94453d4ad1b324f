"""Variants are traces as the corpus has them: well-formed, faulty in one arm, pointed at right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .case import Case, finished, read_cases, write_case
from .transform import TRANSFORMS, variant
from .wellformed import faults

CASES = Path(__file__).resolve().parents[2] / "fixtures" / "cases"
ALL = {case.id: case for case in read_cases(CASES)}
INAPPLICABLE = 62
"""No transform may leave more cases than this as they are, key order aside."""


def _malformed(case: Case) -> list[tuple[str, int, str]]:
    found = [("bad", n, why) for n, why in faults(case.bad)]
    found += [("good", n, why) for n, why in faults(case.good)]
    if case.id.startswith("S23"):  # malformed on purpose: an event that nobody knows
        found = [x for x in found if x != ("bad", x[1], "unknown event 'evict'")]
    return found


@pytest.mark.parametrize("name", ALL)
def test_without_a_seed_nothing_changes(name: str, tmp_path: Path) -> None:
    same = variant(ALL[name], "none")
    folder = write_case(same, tmp_path)
    for arm in ("bad", "good"):
        before = (CASES / name / f"{arm}.jsonl").read_text().splitlines()
        after = (folder / f"{arm}.jsonl").read_text().splitlines()
        assert [json.loads(x) for x in after] == [json.loads(x) for x in before]
    info = json.loads((folder / "case.json").read_text())
    assert info == json.loads((CASES / name / "case.json").read_text())
    assert not _malformed(same)


@pytest.mark.parametrize("name", ALL)
def test_each_transform_alone_is_wellformed_and_keeps_the_focus(name: str) -> None:
    case = ALL[name]
    line = case.focus["line"]
    kind = None if line is None else case.bad[line - 1]["ev"]
    for transform in TRANSFORMS:
        made = variant(case, 0, [transform])
        assert not _malformed(made), transform
        assert made.bad != made.good, transform
        if line is not None:
            assert made.bad[made.focus["line"] - 1]["ev"] == kind, transform


@pytest.mark.parametrize("name", ALL)
def test_transforms_together_are_wellformed(name: str) -> None:
    for seed in range(3):
        made = variant(ALL[name], seed)
        assert not _malformed(made), made.info["transforms"]
        assert made.bad != made.good


@pytest.mark.parametrize("transform", [t for t in TRANSFORMS if t != "keys"])
def test_each_transform_does_something(transform: str) -> None:
    changed = 0
    for case in ALL.values():
        plain = finished(case)
        changed += any(variant(case, s, [transform]).bad != plain.bad for s in range(2))
    assert changed >= len(ALL) - INAPPLICABLE, transform


def test_arms_share_their_choices() -> None:
    made = variant(ALL["S19"], 1, ["names", "ids"])
    requests = [{e["req"] for e in arm if "req" in e} for arm in (made.bad, made.good)]
    assert requests[0] == requests[1]
    first = [next(e for e in arm if e["ev"] == "alloc") for arm in (made.bad, made.good)]
    assert first[0] == first[1]
    assert set(made.focus["blocks"]) <= {
        b for e in made.bad if e["ev"] == "alloc" for b in e["blocks"]
    }


def test_same_seed_same_variant() -> None:
    assert variant(ALL["B01"], 7) == variant(ALL["B01"], 7)
    assert variant(ALL["B01"], 7).bad != variant(ALL["B01"], 8).bad
