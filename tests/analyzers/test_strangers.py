"""704 of writes: a step writes a block that another request holds for itself alone."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event

HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 16, "reserved": [0]},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 4},
    {"ev": "group", "group": "ix", "form": "indexer", "pool": "gpu", "block_tokens": 4,
     "table": "kv", "serves": "kv"},
]  # fmt: skip

TWO: list[dict[str, Any]] = [
    {"ev": "alloc", "req": "r1", "group": "kv", "blocks": [1]},
    {"ev": "alloc", "req": "r2", "group": "kv", "blocks": [2]},
    {"ev": "dispatch", "step": 1, "reqs": ["r1", "r2"]},
]


def writes(block: int, req: str = "r2", **keys: Any) -> dict[str, Any]:
    return {"ev": "write", "step": 1, "req": req, "group": "kv", "blocks": [block],
            "tokens": [0, 4], **keys}  # fmt: skip


def roots(*events: dict[str, Any]) -> list[tuple[str, str | None, list[int]]]:
    lines = [Event.of(n, dict(e)) for n, e in enumerate([*HEAD, *events], 1)]
    findings = check(lines).findings
    return [(f.code, f.request, f.blocks) for f in findings if not f.cause and f.code != "HKV904"]


@pytest.mark.parametrize("ev", ["write", "seal", "index"])
def test_the_holder_is_told(ev: str) -> None:
    keys = {"write": {}, "seal": {"version": 1}, "index": {"version": 1, "kv_version": 1}}[ev]
    group = "ix" if ev == "index" else "kv"
    event = {**writes(1), "ev": ev, "group": group, **keys}
    assert ("HKV704", "r1", [1]) in roots(*TWO, event)


@pytest.mark.parametrize(
    "events",
    [
        [*TWO, writes(2)],
        [*TWO, writes(0, pad=True)],
        [*TWO, writes(1, pad=True)],
        [*TWO, writes(9)],
        [*TWO, {**writes(1), "req": None}],
        # The step was dispatched before the block changed hands: it is the old owner's write.
        [
            TWO[1],
            {"ev": "dispatch", "step": 1, "reqs": ["r2"]},
            {"ev": "free", "req": "r2", "group": "kv", "blocks": [2]},
            {"ev": "alloc", "req": "r1", "group": "kv", "blocks": [2]},
            writes(2),
        ],
        # It gave the block back while its own step was under way.
        [
            *TWO,
            {"ev": "free", "req": "r2", "group": "kv", "blocks": [2]},
            writes(2),
        ],
    ],
    ids=["own", "reserved", "padding", "unknown", "nobody", "changed-hands", "given-back"],
)  # fmt: skip
def test_nothing_is_said(events: list[dict[str, Any]]) -> None:
    told = [e if e.get("req", 0) is not None else {k: v for k, v in e.items() if k != "req"}
            for e in events]  # fmt: skip
    assert not [code for code, *_ in roots(*told) if code == "HKV704"]
