"""The table of docs/comparison.md: of the public bugs, how many are found by how much is seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, EVIDENCE
from hkvtool.model.jsonl import read_jsonl

PAGE = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"
_KINDS = {"publish": "stored", "unpublish": "removed", "reset": "cleared"}
_SEEN = {
    "their KV events": frozenset({"wire"}),
    "what the allocator does": frozenset({"host"}),
    "and steps": frozenset({"host", "step"}),
    "and how bytes lie": frozenset({"host", "step", "layout"}),
    "everything": frozenset(EVIDENCE),
}


def published(events: Iterable[Event]) -> Iterator[Event]:
    """What is left where only KV events are seen: what the engine published, as it would."""
    sent = 0
    for event in events:
        if event.ev in DECLARATIONS or event.ev == "wire":
            yield event
        elif event.ev in _KINDS:
            keep = {k: event.data[k] for k in ("group", "hashes", "tokens") if k in event.data}
            sent += 1
            yield Event.of(event.pos, {
                "ev": "wire", "kind": _KINDS[event.ev], "lane": "pub", "wseq": sent, **keep,
            })  # fmt: skip


def seen(events: list[Event], evidence: frozenset[str]) -> Iterator[Event]:
    """The trace of a recorder that sees no more than this."""
    for event in published(events) if evidence == {"wire"} else events:
        if event.ev in ("trace", "evidence"):
            had = event.get("evidence") or EVIDENCE
            data: dict[str, Any] = {**event.data, "evidence": [c for c in had if c in evidence]}
            yield Event.of(event.pos, data)
        else:
            yield event


@pytest.mark.soak
def test_the_page_says_how_many(cases: Any) -> None:
    text = PAGE.read_text()
    for name, evidence in _SEEN.items():
        found = 0
        for case in cases.values():
            with case.bad.open("rb") as stream:
                events = list(read_jsonl(stream))
            codes = {f.code for f in check(seen(events, evidence)).findings}
            found += set(case.meta["expect"]["must"]) <= codes
        said = re.search(rf"^\| {name} .*\| (\d+) of {len(cases)} \|$", text, re.MULTILINE)
        assert said is not None and int(said.group(1)) == found, (name, found)
