"""The races of the shipped cases, as windows to search."""

from __future__ import annotations

from pathlib import Path

from hkvtool.analyzers import check
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped
from hkvtool.replay.window import Window, window


def race_windows() -> dict[str, Window]:
    """By case and rule: the window of its first race."""
    out: dict[str, Window] = {}
    for folder in sorted(Path(str(shipped("cases"))).iterdir()):
        path = folder / "bad.jsonl"
        if not path.is_file():
            continue
        with path.open("rb") as stream:
            events = list(read_jsonl(stream))
        for finding in check(events).findings:
            if finding.edge and finding.pool and not finding.cause:
                places = frozenset((finding.pool, block) for block in finding.blocks)
                name = f"{folder.name} {finding.code}"
                out[name] = window(events, places, finding.events)
                break
    return out
