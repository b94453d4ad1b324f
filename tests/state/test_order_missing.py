"""The missing edge, held against what the fixed arms of the race cases added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.event import Event
from hkvtool.state.order import Order
from hkvtool.state.order_missing import MissingEdge
from hkvtool.state.order_stamp import Stamp

Read = Callable[[Path], list[Event]]


class Fed:
    """A trace, fed, with its stamps and events by position."""

    def __init__(self, events: list[Event]) -> None:
        self.order = Order()
        self.events = {e.pos: e for e in events}
        self.stamps: dict[int, Stamp] = {e.pos: self.order.feed(e) for e in events}

    def before(self, a: int, b: int) -> bool:
        return self.order.before(self.stamps[a], self.stamps[b])

    def missing(self, a: int, b: int) -> MissingEdge:
        return self.order.explain_missing(self.stamps[a], self.stamps[b])

    def where(self, event: Event) -> int:
        """The position of an event that is written the same here."""
        (pos,) = (p for p, e in self.events.items() if e.data == event.data)
        return pos


@pytest.mark.parametrize(
    ("case_id", "a", "b", "kind", "source", "target"),
    [
        ("B01", 16, 29, "completion", (30, "nic"), (26, "sched")),
        ("B03", 20, 35, "signal/wait", (26, "nic"), (32, "sched")),
        ("B05", 16, 31, "retire", (29, "sched"), (20, "sched")),
        ("B09", 10, 14, "completion", (17, "nic"), (12, "sched")),
        ("B10", 15, 25, "completion", (26, "dma:0"), (24, "sched")),
        ("B16", 17, 32, "signal/wait", (31, "stream:offload"), (32, "stream:compute")),
    ],
)
def test_the_fix_adds_the_edge_that_was_named(
    cases: dict[str, Any],
    read_events: Read,
    case_id: str,
    a: int,
    b: int,
    kind: str,
    source: tuple[int, str],
    target: tuple[int, str],
) -> None:
    case = cases[case_id]
    bad, good = Fed(read_events(case.bad)), Fed(read_events(case.good))
    assert not bad.before(a, b) and not bad.before(b, a)
    named = bad.missing(a, b)
    assert (named.kind, named.from_pos, named.from_lane) == (kind, *source)
    assert (named.to_pos, named.to_lane) == target

    assert named.from_pos is not None
    start = good.where(bad.events[named.from_pos])
    stop = good.where(bad.events[named.to_pos])
    assert good.before(start, stop), "the fix orders those two"
    assert good.before(good.where(bad.events[a]), good.where(bad.events[b]))
    if named.from_lane != named.to_lane:
        between = [good.events[p] for p in range(start, stop) if p in good.events]
        assert any(e.ev == "wait" and e.actor == named.to_lane for e in between), (
            "and does so by a wait on the lane named, between the two named"
        )


@pytest.mark.parametrize(
    ("case_id", "a", "b", "kind", "words"),
    [
        # These fixes take one of the two accesses away instead of ordering them.
        ("B07", 24, 21, "retire", "the retire of step 8 (line 27) before the signal 'recv-b'"),
        ("B13", 9, 29, "completion", "the end of the load 'lb-r' begun at line 9 (line 30)"),
        ("B15", 20, 23, "retire", "the retire of step 31 (line 36) before the buffer access"),
    ],
)
def test_an_edge_that_the_fix_made_needless_is_named_all_the_same(
    cases: dict[str, Any], read_events: Read, case_id: str, a: int, b: int, kind: str, words: str
) -> None:
    bad = Fed(read_events(cases[case_id].bad))
    named = bad.missing(a, b)
    assert named.kind == kind
    assert words in str(named)


def _fed(*lines: dict[str, Any]) -> Fed:
    return Fed([Event.of(i + 1, line) for i, line in enumerate(lines)])


def _use(actor: str, **keys: Any) -> dict[str, Any]:
    return {"ev": "use", "actor": actor, "group": "g", "blocks": [1], **keys}


def test_without_any_half_both_are_asked_for() -> None:
    named = _fed(_use("compute"), _use("load")).missing(1, 2)
    assert (named.kind, named.from_pos, named.to_pos) == ("signal/wait", 1, 2)
    assert str(named) == (
        "a signal on compute behind the use at line 1 and a wait for it on load "
        "before the use at line 2"
    )


def test_a_signal_that_nobody_awaits_is_preferred() -> None:
    signal = {"ev": "signal", "actor": "compute", "event": "done"}
    named = _fed(_use("compute"), signal, _use("load")).missing(1, 3)
    assert (named.from_pos, named.to_pos) == (2, 3)
    assert str(named) == (
        "a wait on load for 'done', signalled at line 2 on compute behind the use at line 1, "
        "before the use at line 3"
    )


def test_a_wait_that_comes_too_late_is_pointed_at() -> None:
    signal = {"ev": "signal", "actor": "compute", "event": "done"}
    wait = {"ev": "wait", "actor": "load", "event": "done"}
    named = _fed(_use("compute"), signal, _use("load"), wait).missing(1, 3)
    assert str(named).endswith("(the wait at line 4 is too late)")


def test_a_host_write_behind_the_dispatch_wants_the_dispatch_later() -> None:
    table = {"ev": "buffer", "name": "table", "op": "write"}
    read = {"ev": "buffer", "name": "table", "op": "read", "actor": "compute", "step": 7}
    dispatch = {"ev": "dispatch", "step": 7}
    named = _fed(dispatch, table, read).missing(2, 3)
    assert (named.kind, named.from_pos, named.to_pos) == ("dispatch", 2, 1)
    assert "the dispatch of step 7 at line 1" in str(named)
    other = _fed({"ev": "dispatch", "step": 6}, table, read).missing(2, 3)
    assert (other.kind, other.from_pos, other.to_pos) == ("dispatch", 2, 3)


def test_a_retire_that_never_came_is_asked_for() -> None:
    named = _fed(_use("compute", step=3), _use("sched")).missing(1, 2)
    assert (named.kind, named.from_pos) == ("retire", None)
    assert str(named) == "a retire of step 3 before the use at line 2"


def test_a_retire_on_a_lane_that_starts_nothing_lacks_its_wait() -> None:
    retire = {"ev": "retire", "step": 3}
    named = _fed(_use("compute", step=3), retire, _use("load")).missing(1, 3)
    assert (named.kind, named.from_pos, named.to_lane) == ("retire", 2, "load")
    assert "and a wait for it on load" in str(named)


def test_a_transfer_that_never_ends_is_waited_for() -> None:
    begin = {"ev": "load_begin", "handle": "h", "group": "g", "blocks": [1], "actor": "nic"}
    named = _fed(begin, _use("compute")).missing(1, 2)
    assert (named.kind, named.from_pos, named.from_lane) == ("completion", None, "nic")
    assert "the end of the load 'h' begun at line 1" in str(named)


def test_a_signal_that_comes_after_both_is_not_the_missing_half() -> None:
    signal = {"ev": "signal", "actor": "compute", "event": "late"}
    named = _fed(_use("compute", step=3), _use("sched"), signal).missing(1, 2)
    assert named.kind == "retire"


def test_work_is_held_back_at_the_signal_right_before_it_only() -> None:
    begin = {"ev": "load_begin", "handle": "h", "group": "g", "blocks": [1], "actor": "nic"}
    start = ({"ev": "signal", "event": "go"}, {"ev": "wait", "event": "go", "actor": "load"})
    assert _fed(begin, *start, _use("load")).missing(1, 4).to_pos == 2
    assert _fed(begin, *start, _use("load"), _use("load")).missing(1, 5).to_pos == 5
