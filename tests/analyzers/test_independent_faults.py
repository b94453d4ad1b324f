"""One root cause gives one root finding; two causes give two, also of one request."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event

Object = dict[str, Any]


def _e(ev: str, **keys: Any) -> Object:
    return {"ev": ev, **{k.rstrip("_"): v for k, v in keys.items()}}


POOLS = [
    _e("pool", pool="gpu", medium="gpu", blocks=8),
    _e("pool", pool="cpu", medium="cpu", blocks=8),
    _e("group", group="kv", form="compressed", pool="gpu", block_tokens=16),
]
HIT = [
    _e("lookup", req="b", tokens=40, hit={"kv": 32, "rec": 16}, blocks={"kv": [1, 2], "rec": [3]}),
    _e("resume", req="b", at=16, blocks={"kv": [1], "rec": [3]}, route={"kv": "reuse"}),
]


def _kv(ev: str, req: str, *blocks: int, **keys: Any) -> Object:
    return _e(ev, req=req, group="kv", blocks=list(blocks), **keys)


SHORT_READ = [
    _kv("alloc", "a", 1),
    _kv("write", "a", 1, tokens=[0, 14]),
    _kv("use", "a", 1, tokens=[0, 16]),
]

TWO: dict[str, tuple[list[str], list[Object]]] = {
    "a cut store, then a double free": (
        ["HKV404", "HKV704"],
        [
            _kv("alloc", "a", 1),
            _kv("write", "a", 1, tokens=[0, 16]),
            _kv("store_begin", "a", 1, handle="s", to="cpu", peer=[1], tokens=[0, 8]),
            _e("store_end", handle="s"),
            _kv("free", "a", 1),
            _kv("free", "a", 1),
        ],
    ),
    "a short read, then a double free of another block": (
        ["HKV101", "HKV704"],
        [*SHORT_READ, _kv("alloc", "a", 2), _kv("free", "a", 2), _kv("free", "a", 2)],
    ),
    "a double free, then a short read by the next owner": (
        ["HKV101", "HKV704"],
        [
            _kv("alloc", "x", 1),
            _kv("free", "x", 1),
            _kv("free", "x", 1),
            *SHORT_READ,
        ],
    ),
    "a stale hit, then a leak": (
        ["HKV105", "HKV904"],
        [
            _kv("alloc", "a", 1),
            _kv("write", "a", 1, tokens=[0, 16]),
            _kv("publish", "a", 1, hashes=["h"], tokens=[0, 16]),
            _kv("free", "a", 1),
            _kv("alloc", "c", 1),
            _kv("write", "c", 1, tokens=[0, 16]),
            _e("lookup", req="b", tokens=20, hit={"kv": 16}, blocks={"kv": [1]}),
            _kv("alloc", "b", 2),
            *(_e("finish", req=r) for r in "abc"),
            _kv("free", "c", 1),
        ],
    ),
    "a veto, then a double free": (
        ["HKV308", "HKV704"],
        [
            _e("group", group="rec", form="recurrent", pool="gpu", block_tokens=16),
            _kv("alloc", "a", 1, 2),
            _e("alloc", req="a", group="rec", blocks=[3]),
            _kv("write", "a", 1, 2, tokens=[0, 32]),
            _e("write", req="a", group="rec", blocks=[3], tokens=[0, 16]),
            _kv("publish", "a", 1, 2, hashes=["h", "i"], tokens=[0, 32]),
            _e("publish", req="a", group="rec", blocks=[3], hashes=["r"], tokens=[0, 16]),
            HIT[0],
            _kv("touch", "b", 1),
            _e("touch", req="b", group="rec", blocks=[3]),
            HIT[1],
            _e("free", req="a", group="rec", blocks=[3]),
            _e("free", req="b", group="rec", blocks=[3]),
            _e("free", req="b", group="rec", blocks=[3]),
        ],
    ),
    "an early announcement, then a hit on older weights": (
        ["HKV103", "HKV105"],
        [
            _kv("alloc", "a", 1),
            _kv("publish", "a", 1, hashes=["h"], tokens=[0, 16]),
            _e("wire", kind="stored", wseq=1, group="kv", hashes=["h"], medium="gpu", lane="pub"),
            _kv("write", "a", 1, tokens=[0, 16]),
            _e("weights", version=2),
            _e("lookup", req="b", tokens=20, hit={"kv": 16}, blocks={"kv": [1]}),
        ],
    ),
}


@pytest.mark.parametrize("name", TWO)
def test_two_causes_give_two_roots(name: str) -> None:
    codes, events = TWO[name]
    head = _e("trace", format="hkv/1", evidence=["host", "step", "wire", "layout"])
    trace = [Event.of(i, data) for i, data in enumerate([head, *POOLS, *events], 1)]
    assert [e.problem for e in trace if e.problem] == []
    found = check(iter(trace)).findings
    assert sorted(f.code for f in found if f.cause is None) == codes
