"""Stories about one request each, told as traces, for `hkvtool why` and the reports."""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event

HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "engine": "tiny", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 32},
    {"ev": "pool", "pool": "cpu", "medium": "cpu", "blocks": 32},
    {"ev": "pool", "pool": "disk", "medium": "disk", "blocks": 32},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    {"ev": "group", "group": "w", "form": "swa", "pool": "gpu", "block_tokens": 16, "window": 16},
    {"ev": "group", "group": "kv@cpu", "form": "compressed", "pool": "cpu", "block_tokens": 16,
     "participates": False},
    {"ev": "group", "group": "kv@disk", "form": "compressed", "pool": "disk", "block_tokens": 16,
     "participates": False},
]  # fmt: skip
"""A full group and a window of one block, in one pool, over two lower tiers."""


def events(*parts: list[dict[str, Any]]) -> list[Event]:
    """A trace of the head and these parts."""
    data = [*HEAD, *(e for part in parts for e in part)]
    return [Event.of(n, dict(e)) for n, e in enumerate(data, 1)]


def computes(
    req: str, step: int, kv: list[int], w: list[int], start: int, hashes: list[str]
) -> list[dict[str, Any]]:
    """A request computes whole blocks of `kv` from token `start` on, with the last window block
    `w` of them; publishes both."""
    end = start + 16 * len(kv)
    return [
        {"ev": "alloc", "req": req, "group": "kv", "blocks": kv, "tokens": [start, end]},
        {"ev": "alloc", "req": req, "group": "w", "blocks": w, "tokens": [end - 16, end]},
        {"ev": "dispatch", "step": step, "reqs": [req]},
        {"ev": "write", "step": step, "req": req, "group": "kv", "blocks": kv,
         "tokens": [start, end]},
        {"ev": "write", "step": step, "req": req, "group": "w", "blocks": w,
         "tokens": [end - 16, end]},
        {"ev": "retire", "step": step, "reqs": [req]},
        {"ev": "publish", "req": req, "group": "kv", "blocks": kv, "hashes": hashes,
         "tokens": [start, end]},
        {"ev": "publish", "req": req, "group": "w", "blocks": w, "hashes": [f"w-{hashes[-1]}"],
         "tokens": [end - 16, end]},
    ]  # fmt: skip


def ends(req: str, kv: list[int], w: list[int]) -> list[dict[str, Any]]:
    """A request gives its blocks back; they stay cached."""
    return [
        {"ev": "free", "req": req, "group": "kv", "blocks": kv},
        {"ev": "free", "req": req, "group": "w", "blocks": w},
        {"ev": "finish", "req": req},
    ]


def resumes(
    req: str, step: int, asked: int, at: int, kv: list[int], w: list[int], hit: dict[str, int]
) -> list[dict[str, Any]]:
    """A request finds blocks, resumes at `at` from them and reads them in a step."""
    found: list[dict[str, Any]] = [
        {"ev": "admit", "req": req, "external": f"client-{req}", "tenant": "acme"},
        {"ev": "lookup", "req": req, "tokens": asked, "hit": hit, "blocks": {"kv": kv, "w": w}},
        {"ev": "touch", "req": req, "group": "kv", "blocks": kv},
    ]
    if w:
        found.append({"ev": "touch", "req": req, "group": "w", "blocks": w})
    found.append({"ev": "resume", "req": req, "at": at, "blocks": {"kv": kv, "w": w},
                  "route": {"kv": "reuse", "w": "reuse"}})  # fmt: skip
    found.append({"ev": "dispatch", "step": step, "reqs": [req]})
    found.append({"ev": "use", "step": step, "req": req, "group": "kv", "blocks": kv,
                  "tokens": [0, at]})  # fmt: skip
    if w:
        found.append({"ev": "use", "step": step, "req": req, "group": "w", "blocks": w,
                      "tokens": [at - 15, at]})  # fmt: skip
    found.append({"ev": "retire", "step": step, "reqs": [req]})
    return found


def first() -> list[dict[str, Any]]:
    """r1 computes 32 tokens into kv 1, 2 and w 3, and ends."""
    return computes("r1", 1, [1, 2], [3], 0, ["a", "b"]) + ends("r1", [1, 2], [3])


def window_taken() -> list[dict[str, Any]]:
    """The window of r1 is given to another request, which writes it."""
    return [
        {"ev": "unpublish", "group": "w", "blocks": [3], "reason": "evict"},
        {"ev": "alloc", "req": "x", "group": "w", "blocks": [3], "tokens": [0, 16]},
        {"ev": "dispatch", "step": 2, "reqs": ["x"]},
        {"ev": "write", "step": 2, "req": "x", "group": "w", "blocks": [3], "tokens": [0, 16]},
        {"ev": "retire", "step": 2, "reqs": ["x"]},
    ]


def good() -> list[Event]:
    """r2 resumes from everything that it needs."""
    return events(first(), resumes("r2", 3, 40, 32, [1, 2], [3], hit={"kv": 32, "w": 32}))


def bad() -> list[Event]:
    """r2 resumes without a window, and goes on."""
    return events(
        first(), window_taken(), resumes("r2", 3, 40, 32, [1, 2], [], hit={"kv": 32, "w": 0})
    )


def recomputed() -> list[Event]:
    """The window is gone, and r2 starts over."""
    lookup = {"ev": "lookup", "req": "r2", "tokens": 40, "hit": {"kv": 32, "w": 0},
              "blocks": {"kv": [1, 2], "w": []}}  # fmt: skip
    resume = {"ev": "resume", "req": "r2", "at": 0, "blocks": {}, "route": {"kv": "recompute"}}
    own = computes("r2", 3, [8, 9], [10], 0, ["c", "d"])
    return events(first(), window_taken(), [lookup, resume], own)


def spread() -> list[Event]:
    """r2 resumes without a window; what it computes goes to host and disk, and r3 reuses it."""
    wrong = resumes("r2", 3, 48, 32, [1, 2], [], hit={"kv": 32, "w": 0})
    on = computes("r2", 4, [5], [6], 32, ["c"])
    out: list[dict[str, Any]] = []
    for tier, block in (("cpu", 4), ("disk", 7)):
        out.append({"ev": "store_begin", "handle": f"to-{tier}", "group": "kv", "blocks": [5],
                    "to": tier, "peer": [block], "tokens": [32, 48], "hashes": ["c"]})  # fmt: skip
        out.append({"ev": "store_end", "handle": f"to-{tier}"})
    out.insert(0, {"ev": "alloc", "pool": "cpu", "group": "kv@cpu", "blocks": [4]})
    out.insert(0, {"ev": "alloc", "pool": "disk", "group": "kv@disk", "blocks": [7]})
    reader = resumes("r3", 5, 60, 48, [1, 2, 5], [6], hit={"kv": 48, "w": 48})
    return events(first(), window_taken(), wrong, on, out, reader)


def loss(place: str) -> list[Event]:
    """As `good`, with events lost `before` r2, in what it `rests` on, or `after` its end."""
    gap = [{"ev": "dropped", "count": 7}]
    told = first()
    two = resumes("r2", 3, 40, 32, [1, 2], [3], hit={"kv": 32, "w": 32})
    if place == "rests":
        return events(told[:6], gap, told[6:], two)
    if place == "after":
        return events(told, two, gap)
    own = computes("r3", 4, [12, 13], [14], 0, ["e", "f"])
    return events(told[:3], gap, told[3:], own)
