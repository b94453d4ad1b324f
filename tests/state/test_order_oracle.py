"""`Order` against the slow closure, over random small traces: every pair, and every advice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.model.event import Event
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp
from tests.state.order_oracle import Oracle

ACTORS = st.sampled_from([None, "sched", "stream:compute", "stream:load", "nic"])
STEPS = st.sampled_from([None, 1, 2, 3])


def _event(ev: str, **keys: Any) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {"ev": st.just(ev), **keys, "actor": ACTORS, "step": keys.get("step", STEPS)}
    return st.fixed_dictionaries(fixed).map(
        lambda data: {key: value for key, value in data.items() if value is not None}
    )


BLOCKS = st.just([1])
HANDLES = st.sampled_from(["h1", "h2"])
EVENTS = st.sampled_from(["e1", "e2", "e3"])
STEP = st.sampled_from([1, 2, 3])
LINES = st.one_of(
    _event("write", group=st.just("g"), blocks=BLOCKS, tokens=st.just([0, 4])),
    _event("use", group=st.just("g"), blocks=BLOCKS),
    _event("buffer", name=st.just("table"), op=st.just("read")),
    _event("free", blocks=BLOCKS),
    _event("signal", event=EVENTS),
    _event("wait", event=EVENTS),
    _event("dispatch", step=STEP),
    _event("retire", step=STEP),
    _event("store_begin", handle=HANDLES, group=st.just("g"), blocks=BLOCKS),
    _event("store_end", handle=HANDLES),
    _event("load_begin", handle=HANDLES, group=st.just("g"), blocks=BLOCKS),
    _event("load_end", handle=HANDLES),
)
MOVES = ("write", "use", "buffer", "store_begin", "load_begin")
TRACES = st.lists(LINES, min_size=2, max_size=24)


def fed(lines: list[dict[str, Any]]) -> tuple[Order, list[Stamp]]:
    order = Order()
    events = [Event.of(i + 1, line) for i, line in enumerate(lines)]
    assert [e.problem for e in events] == [None] * len(events)
    return order, [order.feed(e) for e in events]


@given(TRACES)
@settings(max_examples=400)
def test_every_pair_is_ordered_as_the_closure_says(lines: list[dict[str, Any]]) -> None:
    oracle = Oracle(lines)
    order, stamps = fed(lines)
    n = len(lines)
    said = {(i, j): order.before(stamps[i], stamps[j]) for i in range(n) for j in range(n)}
    assert said == {(i, j): oracle.before(i, j) for i in range(n) for j in range(n)}


@given(TRACES)
@settings(max_examples=200)
def test_the_answer_is_known_when_the_later_event_is_fed(lines: list[dict[str, Any]]) -> None:
    oracle = Oracle(lines)
    order = Order()
    stamps: list[Stamp] = []
    for j, line in enumerate(lines):
        now = order.feed(Event.of(j + 1, line))
        said = [order.before(earlier, now) for earlier in stamps]
        assert said == [oracle.before(i, j) for i in range(j)]
        stamps.append(now)


@given(TRACES)
@settings(max_examples=200)
def test_the_missing_edge_once_added_orders_the_two(lines: list[dict[str, Any]]) -> None:
    order, stamps = fed(lines)
    oracle = Oracle(lines)
    accesses = [i for i, line in enumerate(lines) if line["ev"] in MOVES]
    for j in accesses:
        for i in accesses:
            if i == j or oracle.before(i, j) or oracle.before(j, i):
                continue
            missing = order.explain_missing(stamps[i], stamps[j])
            start = oracle.source(i) if missing.from_pos is None else ("end", missing.from_pos - 1)
            mended = Oracle(lines, [(start, ("start", missing.to_pos - 1))])
            assert mended.before(i, j), missing
