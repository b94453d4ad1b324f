"""Faults of what stands around: announcements, maps, graphs, buffers, keys, caps, layouts."""

from __future__ import annotations

from random import Random
from typing import Any

from .mutation import mutation, pick, where, without
from .tape import Event


@mutation("901 902", wire=True, tight=True)
def announcement_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "wire", lane="recv"))
    return None if n is None else without(events, n)


@mutation("902", wire=True, tight=True)
def never_announced(events: list[Event], rng: Random) -> list[Event] | None:
    """A removal that happened is not said, and what follows is numbered without it."""
    n = pick(rng, where(events, "wire", lane="pub", kind="removed"))
    if n is None:
        return None
    gone = events[n]["wseq"]
    out = []
    for e in events:
        if e["ev"] == "wire" and e["wseq"] >= gone:
            if e["wseq"] == gone:
                continue
            e = {**e, "wseq": e["wseq"] - 1}
        out.append(e)
    return out


@mutation("707", remap=True, requests=12)
def place_not_translated(events: list[Event], rng: Random) -> list[Event] | None:
    moved = [
        n for n in where(events, "use") if events[n].get("index") not in (None, events[n]["blocks"])
    ]
    if not moved:
        return None
    n = rng.choice(moved)
    return [*events[:n], {**events[n], "index": events[n]["blocks"]}, *events[n + 1 :]]


@mutation("801", graphs=True)
def captured_before_the_move(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "launch"))
    if n is None:
        return None
    live = {**events[n]["pointers"], "kv": "0x7f99"}
    return [*events[:n], {**events[n], "pointers": live}, *events[n + 1 :]]


@mutation("802 708 709 702 703", graphs=True)
def padding_hits_a_live_block(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "write", pad=True))
    if n is None:
        return None
    live = next(
        (e["blocks"][-1] for e in reversed(events[:n]) if e["ev"] == "write" and not e.get("pad")),
        None,
    )
    return (
        None if live is None else [*events[:n], {**events[n], "blocks": [live]}, *events[n + 1 :]]
    )


@mutation(
    "706", buffers=True, async_steps=True, streams=True, lane="stream:compute", late_device=True
)
def one_buffer_for_all_steps(events: list[Event], rng: Random) -> list[Event] | None:
    return [{**e, "name": "block_table"} if e["ev"] == "buffer" else e for e in events]


@mutation("706", buffers=True, async_steps=True, streams=True, lane="stream:compute")
def more_read_than_valid(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "buffer", op="read"))
    if n is None:
        return None
    return [*events[:n], {**events[n], "extent": events[n]["extent"] + 3}, *events[n + 1 :]]


@mutation("906", fingerprints=True)
def bytes_changed(events: list[Event], rng: Random) -> list[Event] | None:
    seen: set[int] = set()
    sites = []
    for n, e in enumerate(events):
        if e["ev"] == "fingerprint":
            if set(e["blocks"]) <= seen:
                sites.append(n)
            seen.update(e["blocks"])
    if not sites:
        return None
    n = rng.choice(sites)
    values = ["flipped", *events[n]["values"][1:]]
    return [*events[:n], {**events[n], "values": values}, *events[n + 1 :]]


@mutation("104", keys=True)
def adapter_left_out_of_the_hash(events: list[Event], rng: Random) -> list[Event] | None:
    """Another adapter's content is published under a hash that is in use."""
    pubs = list(where(events, "publish"))
    if len(pubs) < 2:
        return None
    a, b = events[pubs[0]], events[pubs[-1]]
    if a["key"] == b["key"]:
        b = {**b, "key": [*b["key"], "lora=other"]}
    b = {**b, "hashes": [a["hashes"][0], *b["hashes"][1:]]}
    return [*events[: pubs[-1]], b, *events[pubs[-1] + 1 :]]


@mutation("501", tier="cpu", limits=True, tight=True, requests=14)
def cap_ignored(events: list[Event], rng: Random) -> list[Event] | None:
    if not any(e["ev"] == "load_begin" for e in events):
        return None
    return [{**e, "recovering_blocks": 0} if e["ev"] == "limits" else e for e in events]


@mutation("704", tier="cpu", pins=True, tight=True, requests=14)
def unpinned_twice(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "unpin"))
    return None if n is None else [*events[: n + 1], events[n], *events[n + 1 :]]


@mutation("101 102 103 708 105", cow=True, promote=True, requests=16)
def copy_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "copy"))
    return None if n is None else without(events, n)


@mutation("604", family="full_recurrent", tight=True)
def not_zeroed(events: list[Event], rng: Random) -> list[Event] | None:
    """Blocks that held a recurrent state go to attention as they are, and stay part filled."""
    out = [e for e in events if e["ev"] != "zero"]
    return out if len(out) < len(events) else None


@mutation("705", tier="remote", streams=True, lease=True, tight=True, requests=14)
def lease_runs_out(events: list[Event], rng: Random) -> list[Event] | None:
    """The promise ends while the transfer runs, and the transfer says that all is well."""
    for n in where(events, "load_end"):
        if events[n].get("ok", True):
            handle = events[n]["handle"]
            grants = [
                m for m in where(events[:n], "lease", op="grant") if events[m]["handle"] == handle
            ]
            if grants:
                expire = {**events[grants[-1]], "op": "expire"}
                return [*events[:n], expire, *events[n:]]
    return None


@mutation("203 201 204 403", layout=True)
def reader_of_another_format(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "kernel"))
    if n is None:
        return None
    expects = {**events[n]["expects"], "codec": "other/2"}
    return [*events[:n], {**events[n], "expects": expects}, *events[n + 1 :]]


@mutation("703 702 709", tier="cpu", tight=True, streams=True, abort=True, requests=14)
def freed_under_a_load(events: list[Event], rng: Random) -> list[Event] | None:
    """An aborted request's blocks go to another before its load has ended."""
    for n in where(events, "abort"):
        req = events[n]["req"]
        begun = {m: events[m] for m in where(events[:n], "load_begin", req=req)}
        ended = {e["handle"] for e in events[:n] if e["ev"] == "load_end"}
        blocks = [b for e in begun.values() if e["handle"] not in ended for b in e["blocks"]]
        frees = [m for m in where(events, "free", req=req, group="full") if m > n]
        if not blocks or not frees:
            continue
        size = next(e["block_tokens"] for e in events if e["ev"] == "group")
        thief: dict[str, Any] = {"req": "thief", "group": "full", "blocks": blocks}
        write = {"tokens": [0, size * len(blocks)], "step": 90_000}
        theft = [
            events[frees[0]],
            {"ev": "admit", "req": "thief"},
            {"ev": "alloc", **thief},
            {"ev": "dispatch", "step": 90_000, "reqs": ["thief"]},
            {"ev": "write", **thief, **write},
            {"ev": "retire", "step": 90_000},
            {"ev": "finish", "req": "thief"},
            {"ev": "free", **thief},
        ]
        return [*events[: n + 1], *theft, *without(events, frees[0])[n + 1 :]]
    return None


@mutation("903", tight=True)
def lost_without_a_word(events: list[Event], rng: Random) -> list[Event] | None:
    """The counter of a lane jumps."""
    seq: dict[str, int] = {}
    out = []
    for e in events:
        device = "step" in e and e["ev"] not in ("dispatch", "retire")
        lane = e.get("actor") or ("device" if device else "sched")
        seq[lane] = seq.get(lane, 0) + 1
        out.append({**e, "seq": seq[lane]})
    later = [n for n, e in enumerate(out) if e["ev"] == "publish"]
    return without(out, rng.choice(later)) if later else None


@mutation("602", family="full_swa", tight=True, requests=12)
def window_decompressed(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, (n for n in where(events, "resume") if "swa" in events[n]["route"]))
    if n is None:
        return None
    route = {**events[n]["route"], "swa": "decompress"}
    return [*events[:n], {**events[n], "route": route}, *events[n + 1 :]]


@mutation("601", family="full_swa", tight=True)
def other_table_read(events: list[Event], rng: Random) -> list[Event] | None:
    """Full attention finds an id of the window's table in its row."""
    for n in where(events, "use", group="full"):
        e = events[n]
        twins = where(events[n : n + 12], "use", group="swa", req=e["req"], step=e["step"])
        twin = next(twins, None)
        if twin is not None and len(e["blocks"]) > 1:
            blocks = [*e["blocks"][:-1], events[n + twin]["blocks"][-1]]
            return [*events[:n], {**e, "blocks": blocks}, *events[n + 1 :]]
    return None


@mutation("503", tier="cpu", streams=True, tight=True)
def signal_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "signal"))
    return None if n is None else without(events, n)


@mutation("502", tier="cpu", limits=True, tight=True, requests=14)
def budget_ignored(events: list[Event], rng: Random) -> list[Event] | None:
    if not any(e["ev"] == "load_begin" for e in events):
        return None
    return [{**e, "recovering_bytes": 1} if e["ev"] == "limits" else e for e in events]


def _laid_out(events: list[Event], **changes: Any) -> list[Event]:
    n = next(where(events, "group"))
    layout = {**events[n]["layout"], **changes}
    return [*events[:n], {**events[n], "layout": layout}, *events[n + 1 :]]


@mutation("401", layout=True)
def base_off_the_grid(events: list[Event], rng: Random) -> list[Event] | None:
    return _laid_out(events, base=(1 << 30) + 8)


@mutation("402", layout=True)
def region_too_short(events: list[Event], rng: Random) -> list[Event] | None:
    """The last block that is used ends behind the region."""
    layout = events[next(where(events, "group"))]["layout"]
    last = max(b for e in events if e["ev"] == "write" for b in e["blocks"])
    return _laid_out(events, region_bytes=layout["stride_bytes"] * last)


@mutation("404", layout=True)
def rows_too_wide(events: list[Event], rng: Random) -> list[Event] | None:
    layout = events[next(where(events, "group"))]["layout"]
    out = _laid_out(events, row_bytes=layout["row_bytes"] * 2)
    return [e for e in out if e["ev"] != "kernel"]
