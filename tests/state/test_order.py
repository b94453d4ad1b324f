"""Happens-before: the telling cases, and that memory stays bounded."""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event
from hkvtool.state import order_trail
from hkvtool.state.order import LANES, Order
from hkvtool.state.order_stamp import UNTRACKED, Stamp, Transfer


class Trace:
    """Events written one by one; the lane comes first."""

    def __init__(self) -> None:
        self.order = Order()
        self.pos = 0

    def on(self, actor: str | None, ev: str, **keys: Any) -> Stamp:
        self.pos += 1
        data = {"ev": ev, **keys} if actor is None else {"ev": ev, "actor": actor, **keys}
        event = Event.of(self.pos, data)
        assert event.problem is None, event.problem
        return self.order.feed(event)

    def write(self, actor: str | None, step: int | None = None) -> Stamp:
        keys: dict[str, Any] = {"group": "g", "blocks": [1], "tokens": [0, 4]}
        return self.on(actor, "write", **keys, **({} if step is None else {"step": step}))

    def transfer(self, actor: str, handle: str) -> Stamp:
        return self.on(actor, "load_begin", handle=handle, group="g", blocks=[1])

    def before(self, a: Stamp, b: Stamp) -> bool:
        return self.order.before(a, b)


def test_a_lane_does_one_thing_after_the_other() -> None:
    t = Trace()
    a, b = t.write("compute"), t.write("compute")
    assert t.before(a, b)
    assert not t.before(b, a)
    assert not t.before(a, a)


def test_line_order_alone_orders_no_lanes() -> None:
    t = Trace()
    a, b = t.write("compute"), t.write("load")
    assert not t.before(a, b)


def test_a_signal_covers_what_is_behind_it_only() -> None:
    t = Trace()
    early = t.write("compute")
    t.on("compute", "signal", event="e")
    late = t.write("compute")
    t.on("load", "wait", event="e")
    b = t.write("load")
    assert t.before(early, b)
    assert not t.before(late, b)


def test_the_start_of_an_access_orders_nothing() -> None:
    """The host knows that a step was dispatched, not that anything of it is done."""
    t = Trace()
    t.on(None, "dispatch", step=1)
    a = t.write("compute", step=1)
    b = t.write("sched")
    assert not t.before(a, b)


def test_a_wait_before_its_signal_is_no_edge() -> None:
    t = Trace()
    t.on("load", "wait", event="e")
    a = t.write("compute")
    t.on("compute", "signal", event="e")
    b = t.write("load")
    assert not t.before(a, b)


def test_an_event_set_again_stands_for_the_later_signal() -> None:
    t = Trace()
    nic = t.write("nic")
    t.on("nic", "signal", event="e")
    compute = t.write("compute")
    t.on("compute", "signal", event="e")
    t.on("load", "wait", event="e")
    b = t.write("load")
    assert t.before(compute, b)
    assert not t.before(nic, b)


def test_two_lanes_may_wait_for_one_signal() -> None:
    t = Trace()
    a = t.write("compute")
    t.on("compute", "signal", event="e")
    for lane in ("load", "store"):
        t.on(lane, "wait", event="e")
        assert t.before(a, t.write(lane))


def test_a_dispatch_brings_all_that_the_host_knew() -> None:
    t = Trace()
    load = t.transfer("nic", "h")
    t.on("nic", "load_end", handle="h")
    t.on("nic", "signal", event="done")
    t.on("sched", "wait", event="done")
    host = t.on("sched", "buffer", name="table", op="write")
    t.on("sched", "dispatch", step=1)
    after = t.on("sched", "buffer", name="table", op="write")
    b = t.write("compute", step=1)
    assert t.before(load, b)
    assert t.before(host, b)
    assert not t.before(after, b)
    assert not t.before(load, t.write("compute:2", step=2))


def test_a_retire_ends_its_step_and_what_its_lanes_did_before() -> None:
    """Steps in flight on one stream: retiring the second ends the first as well."""
    t = Trace()
    first = t.write("compute", step=1)
    second = t.write("compute", step=2)
    third = t.write("compute", step=3)
    other = t.write("side", step=1)
    t.on("sched", "retire", step=2)
    b = t.write("sched")
    assert t.before(first, b)
    assert t.before(second, b)
    assert not t.before(third, b)
    assert not t.before(other, b), "step 1 is not retired, and its other lane did nothing later"


def test_an_op_behind_its_retire_is_not_retired() -> None:
    t = Trace()
    t.write("compute", step=1)
    t.on("sched", "retire", step=1)
    late = t.write("compute", step=1)
    t.on("host", "retire", step=1)
    assert not t.before(late, t.write("sched"))
    assert t.before(late, t.write("host"))


def test_a_second_retire_is_not_ordered_after_the_first() -> None:
    t = Trace()
    a = t.write("compute", step=1)
    host = t.write("sched")
    t.on("sched", "retire", step=1)
    t.on("other", "retire", step=1)
    b = t.write("other")
    assert t.before(a, b)
    assert not t.before(host, b)


def test_a_retire_takes_what_its_ops_knew_then_not_what_their_lane_learned_since() -> None:
    t = Trace()
    t.write("compute", step=1)
    nic = t.write("nic")
    t.on("nic", "signal", event="e")
    t.on("compute", "wait", event="e")
    t.on("sched", "retire", step=1)
    assert not t.before(nic, t.write("sched"))


def test_what_a_retire_taught_outlasts_the_next_signal_of_another_lane() -> None:
    t = Trace()
    t.on("nic", "signal", event="e")
    t.on("sched", "wait", event="e")
    a = t.write("compute", step=1)
    t.on("sched", "retire", step=1)
    t.on("nic", "signal", event="e")
    t.on("sched", "wait", event="e")
    assert t.before(a, t.write("sched"))


def test_a_step_without_actor_runs_on_the_device() -> None:
    t = Trace()
    a = t.write(None, step=1)
    assert t.order.lanes[a.lane] == "device"
    assert t.before(a, t.write("device"))
    assert not t.before(a, t.write(None))


def test_a_transfer_spans_its_begin_to_its_end() -> None:
    t = Trace()
    a = t.write("nic")
    load = t.transfer("nic", "h")
    meanwhile = t.write("nic")
    assert t.before(a, load)
    assert not t.before(load, meanwhile), "the lane goes on"
    assert not t.before(meanwhile, load)
    end = t.on("poll", "load_end", handle="h")
    assert t.before(load, end)
    assert t.before(load, t.write("poll"))
    assert not t.before(load, t.write("nic"))


def test_a_transfer_without_end_is_before_nothing() -> None:
    t = Trace()
    load = t.transfer("nic", "h")
    t.on("nic", "signal", event="e")
    t.on("sched", "wait", event="e")
    assert not t.before(load, t.write("sched"))
    t.on("sched", "store_end", handle="h")
    assert not t.before(load, t.write("sched")), "the end of a store ends no load"


def test_transfers_of_one_lane_are_ordered_by_their_ends_only() -> None:
    t = Trace()
    first, second = t.transfer("nic", "h1"), t.transfer("nic", "h2")
    assert not t.before(first, second)
    t.on("nic", "load_end", handle="h1")
    assert not t.before(first, second)
    assert t.before(first, t.transfer("nic", "h3"))


def test_a_retire_does_not_wait_for_a_transfer_that_its_step_began() -> None:
    t = Trace()
    load = t.on("nic", "load_begin", handle="h", group="g", blocks=[1], step=1)
    t.on("sched", "retire", step=1)
    assert not t.before(load, t.write("sched"))


def test_an_end_ends_all_that_was_begun_under_its_handle_once() -> None:
    t = Trace()
    one, two = t.transfer("nic", "h"), t.transfer("nic", "h")
    end = t.on("nic", "load_end", handle="h")
    t.on("poll", "load_end", handle="h")
    assert isinstance(one, Transfer) and isinstance(two, Transfer)
    assert one.end is end and two.end is end
    assert not t.before(one, t.write("poll"))


def test_the_epoch_of_an_access_is_enough_to_ask() -> None:
    t = Trace()
    a = t.write("compute", step=1)
    lane, index = a.lane, a.index
    t.on("sched", "retire", step=1)
    assert t.order.ended(lane, index, t.write("sched"))
    assert not t.order.ended(lane, index + 1, t.write("sched"))


def test_a_malformed_event_orders_nothing_and_nothing_is_claimed_of_it() -> None:
    t = Trace()
    a = t.write("compute")
    bad = t.order.feed(Event.of(9, {"ev": "signal", "actor": "compute"}))
    t.on("load", "wait", event="e")
    b = t.write("load")
    assert bad.lane == UNTRACKED
    assert not t.before(a, b)
    assert t.before(bad, b) and t.before(a, bad)


def test_what_is_remembered_is_bounded() -> None:
    t = Trace()
    n = 3 * order_trail.SIGNALS
    for i in range(n):
        t.on("nic", "signal", event=f"e{i}")
        if i % 4 == 0:
            t.on("sched", "dispatch", step=i)
            t.write("compute", step=i)
            t.on("sched", "retire", step=i)
            t.transfer("nic", f"h{i}")
            t.on("nic", "load_end", handle=f"h{i}")
    trail = t.order.trail
    assert len(trail.signals) == order_trail.SIGNALS
    assert len(trail.steps) == order_trail.STEPS
    assert not trail.open
    assert not any(step.ops for step in trail.steps.values()), "a retire merges its ops"
    assert len(trail.recent_signals) == order_trail.RECENT
    assert trail.forgotten == n - order_trail.SIGNALS + n // 4 - order_trail.STEPS
    t.on("late", "wait", event=f"e{n - 1}")
    assert t.before(t.write("nic"), t.write("nic"))


def test_a_step_in_flight_is_remembered_while_many_others_come_and_go() -> None:
    t = Trace()
    t.on("sched", "dispatch", step=-1)
    slow = t.write("compute", step=-1)
    for i in range(4 * order_trail.STEPS):
        t.on("other", "dispatch", step=i)
        t.write("elsewhere", step=i)
        t.on("other", "retire", step=i)
    assert not t.before(slow, t.write("sched"))
    t.on("sched", "retire", step=-1)
    assert t.before(slow, t.write("sched"))
    assert len(t.order.trail.steps) == order_trail.STEPS


def test_steps_that_never_retire_are_forgotten_too() -> None:
    t = Trace()
    for i in range(3 * order_trail.STEPS):
        t.on("sched", "dispatch", step=i)
    assert len(t.order.trail.steps) == order_trail.STEPS
    assert t.order.trail.forgotten == 2 * order_trail.STEPS


def test_handles_do_not_widen_the_clocks() -> None:
    t = Trace()
    for i in range(1000):
        t.transfer("nic", f"h{i}")
        t.on("poll", "load_end", handle=f"h{i}")
    assert len(t.write("poll").clock) <= len(t.order.lanes) == 2


def test_lanes_beyond_the_limit_have_no_place_and_no_findings() -> None:
    t = Trace()
    first = t.write("lane:0")
    for i in range(1, LANES):
        t.write(f"lane:{i}")
    over = t.write("one:too:many")
    assert (over.lane, t.order.untracked) == (UNTRACKED, 1)
    assert t.before(first, over) and t.before(over, first)
    open_load = t.transfer("lane:0", "h")
    assert t.before(open_load, t.write("two:too:many"))
