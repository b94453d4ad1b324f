"""Other sizes: every token count times a factor, and the bytes of pages with it."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import Case, Event

_COUNTS = {
    "group": ("block_tokens", "window", "sink", "overlap", "slack"),
    "slide": ("window_start",), "rollback": ("to",), "resume": ("at",), "lookup": ("tokens",),
}  # fmt: skip
_RANGES = ("tokens", "peer_tokens")
_PAGES = ("page_bytes", "stride_bytes", "region_bytes", "layer_stride_bytes", "offset")


def scale_tokens(case: Case, rng: Random) -> Case:
    """Blocks hold `factor` times the tokens, and everything counted in tokens follows."""
    if case.has("select"):
        return case  # entries are counted in the group's own ratio
    factor = rng.choice((2, 3, 5, 7))
    paged = any("page_bytes" in e.get("layout", {}) for arm in case.arms for e in arm)
    return case.each(lambda e: _scaled(e, factor, paged))


def _scaled(e: Event, factor: int, paged: bool) -> Event:
    out = dict(e)
    for key in _COUNTS.get(e["ev"], ()):
        if key in e:
            out[key] = e[key] * factor
    if e["ev"] == "group" and e.get("ratio", 1) > 1:
        out["ratio"] = e["ratio"] * factor
    for key in _RANGES:
        if isinstance(e.get(key), list):
            out[key] = [t * factor for t in e[key]]
    if e["ev"] == "lookup":
        out["hit"] = {g: n * factor for g, n in e["hit"].items()}
    if e["ev"] == "state" and "written" in e:
        out["written"] = [n * factor for n in e["written"]]
    if paged:
        if isinstance(e.get("layout"), dict):
            out["layout"] = _pages(e["layout"], factor)
        if e["ev"] == "kernel":
            out["expects"] = _pages(e["expects"], factor)
        for key in ("bytes", "recovering_bytes"):
            if key in e:
                out[key] = e[key] * factor
    elif e["ev"] == "kernel":
        out["expects"] = _pages(e["expects"], factor)
    return out


def _pages(layout: dict[str, Any], factor: int) -> dict[str, Any]:
    """Rows stay as they are: a page has more of them."""
    out = dict(layout)
    for key in (*_PAGES, "kernel_block_tokens", "block_tokens"):
        if key in out:
            out[key] = out[key] * factor
    if out.get("ratio", 1) > 1:
        out["ratio"] = out["ratio"] * factor
    return out
