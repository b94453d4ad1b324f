"""Windows whose orders are known."""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay.window import Window, window


def harmless(lanes: int = 3, turns: int = 2) -> Window:
    """Lanes that take, fill, read and give back the same blocks in any order: none fails."""
    lines: list[dict[str, Any]] = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 100},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    ]
    for turn in range(turns):
        for lane in range(lanes):
            which = {"group": "kv", "blocks": [1 + turn], "req": f"r{lane}.{turn}",
                     "actor": f"worker:{lane}"}  # fmt: skip
            lines += [
                {"ev": "alloc", **which}, {"ev": "write", "tokens": [0, 16], **which},
                {"ev": "use", "tokens": [0, 16], **which}, {"ev": "free", **which},
            ]  # fmt: skip
    events = [Event.of(pos, data) for pos, data in enumerate(lines, 1)]
    return window(events, frozenset(("gpu", block) for block in range(100)), forced=False)
