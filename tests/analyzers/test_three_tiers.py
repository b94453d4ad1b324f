"""Content that goes down two tiers and comes up again, and is used at the top."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event


def events(*, used: bool) -> Iterator[dict[str, Any]]:
    yield {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]}
    for pool, medium in (("gpu", "gpu"), ("cpu", "cpu"), ("disk", "disk")):
        yield {"ev": "pool", "pool": pool, "medium": medium, "blocks": 8}
        group = "kv" if pool == "gpu" else f"kv.{pool}"
        yield {
            "ev": "group", "group": group, "form": "compressed", "pool": pool, "block_tokens": 4,
            "participates": pool == "gpu",
        }  # fmt: skip
    yield {"ev": "alloc", "group": "kv", "blocks": [1], "req": "r"}
    yield {"ev": "write", "group": "kv", "blocks": [1], "tokens": [0, 4], "req": "r"}
    yield {"ev": "publish", "group": "kv", "blocks": [1], "hashes": ["h"], "tokens": [0, 4]}
    yield {"ev": "alloc", "group": "kv.cpu", "blocks": [2]}
    yield {"ev": "store_begin", "handle": "down", "group": "kv", "blocks": [1], "to": "cpu",
           "peer": [2]}  # fmt: skip
    yield {"ev": "store_end", "handle": "down"}
    yield {"ev": "publish", "group": "kv.cpu", "blocks": [2], "hashes": ["h"], "tokens": [0, 4]}
    for n in range(2):
        yield {"ev": "store_begin", "handle": f"s{n}", "group": "kv.cpu", "blocks": [2],
               "to": "disk", "peer": [n]}  # fmt: skip
        yield {"ev": "store_end", "handle": f"s{n}"}
        yield {"ev": "load_begin", "handle": f"l{n}", "group": "kv.cpu", "blocks": [2],
               "from": "disk", "peer": [n], "hashes": ["h"]}  # fmt: skip
        yield {"ev": "load_end", "handle": f"l{n}"}
        if used:
            yield {"ev": "use", "group": "kv", "blocks": [1], "req": "r", "tokens": [0, 4]}


def codes(told: Iterator[dict[str, Any]]) -> list[str]:
    counted = zip(itertools.count(1), told)
    return [f.code for f in check(Event.of(pos, data) for pos, data in counted).findings]


def test_what_is_used_at_the_top_was_not_brought_up_in_vain() -> None:
    assert codes(events(used=True)) == []


def test_what_nobody_uses_was() -> None:
    assert codes(events(used=False)) == ["HKV502"]
