"""Few events that decide a question: what is known, what may still come."""

from __future__ import annotations

from typing import Any

import pytest

from .tape import Event, make
from .verdict import loud, report_on


def _head(*groups: Event, pools: tuple[str, ...] = ("gpu",)) -> list[Event]:
    medium = {"gpu": "gpu", "cpu": "cpu"}
    lines = [make("trace", format="hkv/1", evidence=["host", "step"])]
    lines += [make("pool", pool=p, medium=medium[p], blocks=64, reserved=[0]) for p in pools]
    return lines + list(groups)


def _kv(**keys: Any) -> Event:
    return make("group", group="kv", form="compressed", pool="gpu", block_tokens=8, **keys)


def _step(n: int, reqs: list[str], *accesses: Event) -> list[Event]:
    inside = [{**e, "step": n} for e in accesses]
    return [make("dispatch", step=n, reqs=reqs), *inside, make("retire", step=n)]


def test_a_tail_may_be_filled_between_resume_and_use() -> None:
    """Publishing early is by itself no fault: the write comes before the reader on its lane."""
    events = [
        *_head(
            make("group", group="c4", form="compressed", pool="gpu", block_tokens=8, ratio=4),
            make("group", group="cs", form="tail", pool="gpu", block_tokens=8, overlap=4,
                 serves="c4"),
        ),
        make("admit", req="a"),
        make("alloc", req="a", group="c4", blocks=[1]),
        make("alloc", req="a", group="cs", blocks=[11]),
        *_step(1, ["a"], make("write", req="a", group="cs", blocks=[11], tokens=[0, 1])),
        make("publish", req="a", group="cs", blocks=[11], hashes=["h"], tokens=[0, 8]),
        make("publish", req="a", group="c4", blocks=[1], hashes=["h"], tokens=[0, 8]),
        make("admit", req="b"),
        make("lookup", req="b", hit={"c4": 8, "cs": 8}, blocks={"c4": [1], "cs": [11]}, tokens=12),
        make("touch", req="b", group="cs", blocks=[11]),
        make("touch", req="b", group="c4", blocks=[1]),
        make("resume", req="b", at=8, blocks={"c4": [1], "cs": [11]}),
        make("alloc", req="b", group="cs", blocks=[12]),
        make("alloc", req="b", group="c4", blocks=[2]),
        *_step(
            2, ["a", "b"],
            make("write", req="a", group="cs", blocks=[11], tokens=[1, 8]),
            make("seal", req="a", group="c4", blocks=[1], tokens=[0, 8], version=1, from_="cs"),
            make("write", req="b", group="cs", blocks=[12], tokens=[8, 12]),
            make("seal", req="b", group="c4", blocks=[2], tokens=[8, 12], version=1, from_="cs"),
            make("use", req="b", group="cs", blocks=[11, 12]),
            make("use", req="b", group="c4", blocks=[1, 2]),
        ),
        make("finish", req="a"),
        make("free", req="a", group="c4", blocks=[1]),
        make("free", req="a", group="cs", blocks=[11]),
        make("finish", req="b"),
        make("free", req="b", group="c4", blocks=[2, 1]),
        make("free", req="b", group="cs", blocks=[12, 11]),
    ]  # fmt: skip
    assert not loud(report_on(events))


def _stored_and_loaded(source: list[Event]) -> list[Event]:
    """Block 5 of request a goes to the CPU and comes back as block 6 of request b."""
    far = make("group", group="kv.cpu", form="compressed", pool="cpu", block_tokens=8,
               participates=False)  # fmt: skip
    return [
        *_head(_kv(), far, pools=("gpu", "cpu")),
        *source,
        make("publish", req="a", group="kv", blocks=[5], hashes=["h"], tokens=[0, 8]),
        make("alloc", req="a", group="kv.cpu", blocks=[20]),
        make("store_begin", req="a", handle="s", group="kv", blocks=[5], peer=[20], to="cpu"),
        make("store_end", handle="s", ok=True),
        make("publish", group="kv.cpu", blocks=[20], hashes=["h"]),
        make("free", req="a", group="kv.cpu", blocks=[20]),
        make("finish", req="a"),
        make("free", req="a", group="kv", blocks=[5]),
        make("reset", pool="gpu"),
        make("lookup", req="b", hit={"kv": 0, "kv.cpu": 8}, tokens=12),
        make("alloc", req="b", group="kv", blocks=[6]),
        make("touch", req="b", group="kv.cpu", blocks=[20]),
        make("load_begin", req="b", handle="l", group="kv", blocks=[6], peer=[20], from_="cpu"),
        make("load_end", handle="l", ok=True),
        make("free", req="b", group="kv.cpu", blocks=[20]),
        make("publish", req="b", group="kv", blocks=[6], hashes=["h"], tokens=[0, 8]),
        make("resume", req="b", at=8, blocks={"kv": [6]}, route={"kv": "load"}),
        make("admit", req="b"),
        make("alloc", req="b", group="kv", blocks=[7]),
        *_step(
            10, ["b"],
            make("write", req="b", group="kv", blocks=[7], tokens=[8, 12]),
            make("use", req="b", group="kv", blocks=[6, 7]),
        ),
        make("finish", req="b"),
        make("free", req="b", group="kv", blocks=[7, 6]),
    ]  # fmt: skip


_HALF = make("write", req="a", group="kv", blocks=[5], tokens=[4, 8])


def test_what_comes_out_of_an_unknown_block_is_unknown() -> None:
    """The recording began when half of block 5 was written: nothing fires on it or its copies."""
    assert not loud(report_on(_stored_and_loaded(_step(9, ["a"], _HALF))))


def test_half_a_block_that_is_known_is_half_a_block_after_its_travels() -> None:
    known = [make("admit", req="a"), make("alloc", req="a", group="kv", blocks=[5])]
    found = loud(report_on(_stored_and_loaded([*known, *_step(9, ["a"], _HALF)])))
    assert {f.code for f in found} & {"HKV101", "HKV102", "HKV103"}


def _hit(told: bool) -> list[Event]:
    """A hit whose publish the recorder lost: it says so, or only its counter jumps."""
    events = [
        *_head(_kv()),
        make("admit", req="a"),
        make("alloc", req="a", group="kv", blocks=[5]),
        *_step(1, ["a"], make("write", req="a", group="kv", blocks=[5], tokens=[0, 8])),
        make("publish", req="a", group="kv", blocks=[5], hashes=["h"], tokens=[0, 8]),
        make("finish", req="a"),
        make("free", req="a", group="kv", blocks=[5]),
        make("admit", req="b"),
        make("lookup", req="b", hit={"kv": 8}, blocks={"kv": [5]}, tokens=12),
        make("touch", req="b", group="kv", blocks=[5]),
        make("resume", req="b", at=8, blocks={"kv": [5]}, route={"kv": "reuse"}),
        make("alloc", req="b", group="kv", blocks=[7]),
        *_step(
            2, ["b"],
            make("write", req="b", group="kv", blocks=[7], tokens=[8, 12]),
            make("use", req="b", group="kv", blocks=[5, 7]),
        ),
        make("finish", req="b"),
        make("free", req="b", group="kv", blocks=[7, 5]),
    ]  # fmt: skip
    seq: dict[str, int] = {}
    out = []
    for e in events:
        lane = "device" if e["ev"] in ("write", "use") else "sched"
        seq[lane] = seq.get(lane, 0) + 1
        if e["ev"] != "publish":
            out.append(e if told else {**e, "seq": seq[lane]})
        elif told:
            out.append(make("dropped", count=1))
    return out


@pytest.mark.parametrize("told", [True, False])
def test_a_loss_makes_what_follows_uncertain(told: bool) -> None:
    """HKV903: events said to be dropped, or a jump of `seq`; state after it is uncertain."""
    found = loud(report_on(_hit(told)))
    assert [f.code for f in found] == ["HKV903"]


def test_a_state_on_the_way_says_what_holds_and_adds_nothing() -> None:
    """`state`: what held when recording went on (rotation, snapshot)."""
    events = [
        *_head(_kv()),
        make("admit", req="a"),
        make("alloc", req="a", group="kv", blocks=[5]),
        *_step(1, ["a"], make("write", req="a", group="kv", blocks=[5], tokens=[0, 8])),
        make("publish", req="a", group="kv", blocks=[5], hashes=["h"], tokens=[0, 8]),
        *(make("wire", kind="stored", wseq=1, group="kv", hashes=["h"], medium="gpu", lane=lane)
          for lane in ("pub", "recv")),
        make("state", pool="gpu", blocks=[5], refs=[1], gens=[1], hashes=["h"], versions=[1],
             written=[8], owners=["a"], groups=["kv"]),
        make("finish", req="a"),
        make("free", req="a", group="kv", blocks=[5]),
    ]  # fmt: skip
    events[0]["evidence"].append("wire")
    assert not loud(report_on(events))


def test_a_step_in_flight_is_no_use_of_a_later_resume() -> None:
    """Preempted with a step in flight, resumed on what that step is about to write."""
    write = make("write", req="a", group="kv", blocks=[5], tokens=[4, 8], step=2)
    events = [
        *_head(_kv()),
        make("admit", req="a"),
        make("alloc", req="a", group="kv", blocks=[5]),
        *_step(1, ["a"], make("write", req="a", group="kv", blocks=[5], tokens=[0, 4])),
        make("publish", req="a", group="kv", blocks=[5], hashes=["h"], tokens=[0, 8]),
        make("dispatch", step=2, reqs=["a"]),
        make("preempt", req="a", reason="out-of-blocks"),
        make("free", req="a", group="kv", blocks=[5]),
        make("lookup", req="a", hit={"kv": 8}, blocks={"kv": [5]}, tokens=9),
        make("touch", req="a", group="kv", blocks=[5]),
        make("resume", req="a", at=8, blocks={"kv": [5]}, route={"kv": "reuse"}),
        make("admit", req="a"),
        make("alloc", req="a", group="kv", blocks=[6]),
        make("dispatch", step=3, reqs=["a"]),
        write,
        make("use", req="a", group="kv", blocks=[5], step=2),
        make("write", req="a", group="kv", blocks=[6], tokens=[8, 9], step=3),
        make("use", req="a", group="kv", blocks=[5, 6], step=3),
        make("retire", step=2),
        make("retire", step=3),
        make("finish", req="a"),
        make("free", req="a", group="kv", blocks=[6, 5]),
    ]
    assert not loud(report_on(events))


def test_a_half_written_block_of_a_state_is_filled_after_its_publish() -> None:
    """A hash published before its write takes the version of the write that fills the block."""
    events = [
        *_head(_kv()),
        make("state", pool="gpu", blocks=[5], refs=[1], gens=[1], hashes=[None], versions=[1],
             written=[4], owners=["a"], groups=["kv"]),
        make("publish", req="a", group="kv", blocks=[5], hashes=["h"], tokens=[0, 8]),
        *_step(
            2, ["a"],
            make("write", req="a", group="kv", blocks=[5], tokens=[4, 8]),
            make("use", req="a", group="kv", blocks=[5]),
        ),
        make("finish", req="a"),
        make("free", req="a", group="kv", blocks=[5]),
        make("lookup", req="b", hit={"kv": 8}, blocks={"kv": [5]}, tokens=9),
        make("touch", req="b", group="kv", blocks=[5]),
        make("resume", req="b", at=8, blocks={"kv": [5]}, route={"kv": "reuse"}),
        make("admit", req="b"),
        make("alloc", req="b", group="kv", blocks=[6]),
        *_step(
            3, ["b"],
            make("write", req="b", group="kv", blocks=[6], tokens=[8, 9]),
            make("use", req="b", group="kv", blocks=[5, 6]),
        ),
        make("finish", req="b"),
        make("free", req="b", group="kv", blocks=[6, 5]),
    ]  # fmt: skip
    assert not loud(report_on(events))
