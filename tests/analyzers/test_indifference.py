"""What a check says hangs on what happened, not on how the trace spells it.

Every rule example and every case is spelled in other ways that mean the same; the findings must
be the same, block by block and event by event.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.events import ACCESSES
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped

Object = dict[str, Any]
Said = list[tuple[str, str, bool, list[int], list[int]]]

TRACES = sorted(Path(str(shipped("rules"))).rglob("*.jsonl"))
TRACES += sorted(Path(str(shipped("cases"))).rglob("*.jsonl"))

NAMED = frozenset(
    {"req", "pool", "group", "handle", "event", "owner", "table", "serves", "from", "graph"}
    | {"src_group", "dst_group"}
)
LISTED = frozenset({"reqs", "owners", "groups"})
BY_GROUP = frozenset({"hit", "route", "blocks", "hashes"})


def _spelled(name: Any) -> Any:
    return None if name is None else f"x{name}"


def _renamed(trace: list[Object]) -> list[Object]:
    """Every request, pool, group, transfer, edge and graph under another name."""
    out = []
    for event in trace:
        new: Object = {}
        for key, value in event.items():
            if key in NAMED or (key == "to" and event["ev"] != "rollback"):
                new[key] = _spelled(value)
            elif key in LISTED:
                new[key] = [_spelled(v) for v in value]
            elif key in BY_GROUP and isinstance(value, dict):
                new[key] = {_spelled(k): v for k, v in value.items()}
            else:
                new[key] = value
        out.append(new)
    return out


def _stamped(trace: list[Object]) -> list[Object]:
    """With a clock, where there is none, and a key that nobody knows."""
    if any("ts" in event for event in trace):
        return [{**event, "colour": "blue"} for event in trace]
    return [{**event, "ts": 1000 * i, "colour": "blue"} for i, event in enumerate(trace)]


def _laned(trace: list[Object]) -> list[Object]:
    """With every default lane written out."""
    out = []
    for event in trace:
        on_device = "step" in event and event["ev"] in ACCESSES
        out.append({"actor": "device" if on_device else "sched", **event})
    return out


NEWCOMER: list[Object] = [
    {"ev": "pool", "pool": "aside", "medium": "gpu", "blocks": 4},
    {
        "ev": "group", "group": "aside", "form": "compressed", "pool": "aside",
        "block_tokens": 16, "participates": False,
    },
    {"ev": "admit", "req": "aside"},
    {"ev": "alloc", "req": "aside", "group": "aside", "blocks": [1]},
    {"ev": "write", "req": "aside", "group": "aside", "blocks": [1], "tokens": [0, 16]},
    {"ev": "use", "req": "aside", "group": "aside", "blocks": [1]},
    {"ev": "finish", "req": "aside"},
    {"ev": "free", "req": "aside", "group": "aside", "blocks": [1]},
]  # fmt: skip
"""The life of a request that has nothing to do with anything else."""


def _accompanied(trace: list[Object]) -> list[Object]:
    return [trace[0], *NEWCOMER, *trace[1:]]


def _said(trace: list[Object], moved: int = 0) -> Said:
    """The findings; `moved` events were put behind the first one."""
    report = check(iter([Event.of(i, dict(event)) for i, event in enumerate(trace, 1)]))
    return sorted(
        (
            f.code,
            str(f.severity),
            f.cause is None,
            sorted(pos - moved if pos > 1 else pos for pos in f.events),
            sorted(f.blocks),
        )
        for f in report.findings
    )


SPELLINGS: list[tuple[str, Callable[[list[Object]], list[Object]], int]] = [
    ("names", _renamed, 0),
    ("stamps", _stamped, 0),
    ("lanes", _laned, 0),
    ("company", _accompanied, len(NEWCOMER)),
]


@pytest.mark.parametrize("path", TRACES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_spelling_does_not_matter(path: Path) -> None:
    with path.open("rb") as stream:
        events = list(read_jsonl(stream))
    if any(event.problem for event in events):
        pytest.skip("a malformed line cannot be spelled another way")
    trace = [dict(event.data) for event in events]
    plain = _said(trace)
    for name, spell, moved in SPELLINGS:
        assert _said(spell(trace), moved) == plain, name
