"""What a trace lets a rule see."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS, EVIDENCE
from hkvtool.model.evidence import Evidence, evidence_of, implied_by_kind


def trace(*lines: dict[str, Any]) -> Evidence:
    return evidence_of(Event.of(pos, line) for pos, line in enumerate(lines, 1))


def test_what_the_cases_declare_is_what_their_events_imply(case, read_events) -> None:
    for arm in case.arms:
        first, *others = read_events(arm)
        declared, implied = evidence_of([first]), evidence_of(others)
        assert (declared.source, implied.source) == ("declared", "implied")
        # A recorder that sees graphs alone still tells a rebase, which is evidence of layout.
        assert set(implied.classes) - {"layout"} == set(declared.classes) - {"layout"}
        assert set(declared.classes) <= set(implied.classes)


def test_every_kind_implies_one_class_or_declares() -> None:
    silent = {kind for kind in EVENTS if implied_by_kind(kind) is None}
    assert silent == {
        "trace", "evidence", "pool", "group", "kernel", "limits", "weights", "dropped",
    } - {"kernel"}  # fmt: skip
    assert {implied_by_kind(kind) for kind in EVENTS} - {None} == set(EVIDENCE) - {"key"}


@pytest.mark.parametrize(
    ("line", "implied"),
    [
        ({"ev": "reset", "actor": "worker:0"}, ("host",)),
        ({"ev": "reset", "actor": "stream:load"}, ("host", "stream")),
        ({"ev": "lookup", "req": "r", "hit": {}, "key": ["lora"]}, ("host", "key")),
        ({"ev": "rebase", "layout": {}}, ("layout",)),
        ({"ev": "wire", "kind": "cleared"}, ("wire",)),
        ({"ev": "alloc"}, ()),
        ({"ev": "no-such"}, ()),
    ],
)
def test_what_an_event_implies(line: dict[str, Any], implied: tuple[str, ...]) -> None:
    assert trace(line).classes == implied


def test_the_first_declaration_decides() -> None:
    found = trace(
        {"ev": "reset"},
        {"ev": "trace", "format": "hkv/1"},
        {"ev": "trace", "format": "hkv/1", "evidence": ["mind", "wire", "step"]},
        {"ev": "trace", "format": "hkv/1", "evidence": ["key"]},
        {"ev": "signal", "event": "e"},
    )
    assert (found.classes, found.source) == (("step", "wire", "mind"), "declared")


def test_kinds_alone_imply_too() -> None:
    found = Evidence()
    found.see_kinds(["dispatch", "pool", "alloc"])
    assert found.classes == ("host", "step")
