"""One fault put into a correct trace, and the codes by which it may be found.

The correct engines show that a checker is silent where it must be; these show that it is not
silent for want of looking, on long traces full of unrelated work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .tape import Event

Change = Callable[[list[Event], Random], "list[Event] | None"]


@dataclass(frozen=True)
class Mutation:
    """`change` gives the faulty trace, or None where the trace offers no place for it."""

    change: Change
    codes: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)


MUTATIONS: dict[str, Mutation] = {}


def _mutation(codes: str, **options: Any) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        wanted = frozenset(f"HKV{code}" for code in codes.split())
        MUTATIONS[change.__name__] = Mutation(change, wanted, options)
        return change

    return add


def _where(events: list[Event], ev: str, **keys: Any) -> Iterator[int]:
    for n, e in enumerate(events):
        if e["ev"] == ev and all(e.get(k) == v for k, v in keys.items()):
            yield n


def _without(events: list[Event], *gone: int) -> list[Event]:
    return [e for n, e in enumerate(events) if n not in gone]


def _pick(rng: Random, places: Iterator[int]) -> int | None:
    found = list(places)
    return rng.choice(found) if found else None


@_mutation("704", tight=True)
def double_free(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, (n for n in _where(events, "free") if "req" in events[n]))
    if n is None:
        return None
    again = {**events[n], "blocks": events[n]["blocks"][:1]}
    return [*events[: n + 1], again, *events[n + 1 :]]


@_mutation("904", family="full_swa")
def never_freed(events: list[Event], rng: Random) -> list[Event] | None:
    """The last request leaves the blocks of one group behind."""
    return _without(events, max(_where(events, "free")))


@_mutation("704 904", tight=True)
def touch_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, (n for n in _where(events, "touch") if "req" in events[n]))
    return None if n is None else _without(events, n)


@_mutation("704", tight=True)
def held_block_taken(events: list[Event], rng: Random) -> list[Event] | None:
    """A block is allocated that another request still holds."""
    held: dict[int, str] = {}
    sites = []
    for n, e in enumerate(events):
        if e["ev"] == "alloc":
            foreign = [b for b, who in held.items() if who != e["req"]]
            if foreign and held:
                sites.append((n, foreign))
            held.update(dict.fromkeys(e["blocks"], e["req"]))
        elif e["ev"] == "free":
            for b in e["blocks"]:
                held.pop(b, None)
    if not sites:
        return None
    n, foreign = rng.choice(sites)
    old, new = events[n]["blocks"][-1], rng.choice(foreign)
    out = list(events)
    out[n] = {**events[n], "blocks": [*events[n]["blocks"][:-1], new]}
    for m in range(n + 1, len(out)):
        if out[m].get("req") == events[n]["req"] and isinstance(out[m].get("blocks"), list):
            out[m] = {**out[m], "blocks": [new if b == old else b for b in out[m]["blocks"]]}
    return out


@_mutation("101 102 103 704 105", tight=True)
def foreign_block_read(events: list[Event], rng: Random) -> list[Event] | None:
    """One entry of a table row is another request's."""
    uses = [n for n in _where(events, "use") if len(events[n]["blocks"]) > 2]
    for n in rng.sample(uses, len(uses)):
        for m in range(n - 1, max(0, n - 40), -1):
            e = events[m]
            if e["ev"] == "use" and e["step"] == events[n]["step"] and e["req"] != events[n]["req"]:
                foreign = [b for b in e["blocks"][:-1] if b not in events[n]["blocks"]]
                if foreign:
                    blocks = [*events[n]["blocks"][:-2], foreign[0], events[n]["blocks"][-1]]
                    return [*events[:n], {**events[n], "blocks": blocks}, *events[n + 1 :]]
    return None


@_mutation("101 102 103")
def write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """A whole chunk is never written, and read all the same."""
    n = _pick(rng, (n for n in _where(events, "write") if len(events[n]["blocks"]) > 2))
    return None if n is None else _without(events, n)


@_mutation("303 101 103", family="swa_only")
def window_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, (n for n in _where(events, "write") if len(events[n]["blocks"]) > 2))
    return None if n is None else _without(events, n)


@_mutation("306 103", family="full_recurrent", requests=12)
def state_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """A checkpoint that somebody resumes from was never written."""
    for n in _where(events, "resume"):
        slots = events[n]["blocks"].get("mamba")
        if slots and events[n]["route"].get("mamba") == "reuse":
            before = [m for m in _where(events[:n], "write") if events[m]["blocks"] == slots]
            if before and events[before[-1]]["group"] == "mamba":
                return _without(events, before[-1])
    return None


@_mutation("304 103", family="mla")
def index_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    full = (n for n in _where(events, "index") if events[n]["tokens"][1] % 8 == 0)
    n = _pick(rng, full)
    return None if n is None else _without(events, n)


@_mutation("304", family="mla")
def index_of_old_version(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, (n for n in _where(events, "index") if events[n]["kv_version"] > 1))
    if n is None:
        return None
    e = {**events[n], "kv_version": events[n]["kv_version"] - 1}
    used = any(
        m["ev"] == "use" and m["group"] == e["group"] and e["blocks"][0] in m["blocks"]
        for m in events[n : n + 30]
    )
    return [*events[:n], e, *events[n + 1 :]] if used else None


@_mutation("302", family="c4")
def tail_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    tails = _where(events, "write", group="c4tail")
    # A unit at least, so that an entry is sealed from it.
    n = _pick(rng, (n for n in tails if events[n]["tokens"][1] - events[n]["tokens"][0] >= 8))
    return None if n is None else _without(events, n)


@_mutation("605 305 603 602 703", tier="cpu", tight=True, requests=14)
def load_never_ends(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "load_end"))
    return None if n is None else _without(events, n)


@_mutation("603 305 103 602 703", tier="cpu", tight=True, requests=14)
def load_ends_late(events: list[Event], rng: Random) -> list[Event] | None:
    """The request goes on before its load has ended."""
    n = _pick(rng, _where(events, "load_end"))
    if n is None:
        return None
    begin = next(
        e for e in events if e["ev"] == "load_begin" and e["handle"] == events[n]["handle"]
    )
    for m in range(n, len(events)):
        e = events[m]
        if e["ev"] == "use" and set(begin["blocks"]) & set(e["blocks"]):
            return [*events[:n], *events[n + 1 : m + 1], events[n], *events[m + 1 :]]
    return None


@_mutation("103 703 709 702 603 305", tier="cpu", tight=True, streams=True, requests=14)
def load_edge_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """Nobody waits for the load's stream."""
    signals = {e["event"]: e.get("actor") for e in events if e["ev"] == "signal"}
    loads = [
        n for n in _where(events, "wait")
        if str(signals.get(events[n]["event"])).endswith(":load") and "actor" not in events[n]
    ]  # fmt: skip
    # Only the last one: an edge that comes later on the same lane would order the load too.
    return _without(events, loads[-1]) if loads else None


@_mutation("307", family="mla", tier="cpu", tight=True, layout=True, requests=14)
def component_not_stored(events: list[Event], rng: Random) -> list[Event] | None:
    """Index rows stay behind in every transfer."""
    handles = {e["handle"] for e in events if e.get("group") == "idx" and "handle" in e}
    if not any(e["ev"] == "load_begin" and e["handle"] in handles for e in events):
        return None
    return [e for e in events if e.get("handle") not in handles]


@_mutation("901 902", wire=True, tight=True)
def announcement_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "wire", lane="recv"))
    return None if n is None else _without(events, n)


@_mutation("902", wire=True, tight=True)
def never_announced(events: list[Event], rng: Random) -> list[Event] | None:
    """A removal that happened is not said, and what follows is numbered without it."""
    n = _pick(rng, _where(events, "wire", lane="pub", kind="removed"))
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


@_mutation("707", remap=True, requests=12)
def place_not_translated(events: list[Event], rng: Random) -> list[Event] | None:
    moved = [
        n
        for n in _where(events, "use")
        if events[n].get("index") not in (None, events[n]["blocks"])
    ]
    if not moved:
        return None
    n = rng.choice(moved)
    return [*events[:n], {**events[n], "index": events[n]["blocks"]}, *events[n + 1 :]]


@_mutation("801", graphs=True)
def captured_before_the_move(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "launch"))
    if n is None:
        return None
    live = {**events[n]["pointers"], "kv": "0x7f99"}
    return [*events[:n], {**events[n], "pointers": live}, *events[n + 1 :]]


@_mutation("802 708 709 702 703", graphs=True)
def padding_hits_a_live_block(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "write", pad=True))
    if n is None:
        return None
    live = next(
        (e["blocks"][-1] for e in reversed(events[:n]) if e["ev"] == "write" and not e.get("pad")),
        None,
    )
    return (
        None if live is None else [*events[:n], {**events[n], "blocks": [live]}, *events[n + 1 :]]
    )


@_mutation(
    "706", buffers=True, async_steps=True, streams=True, lane="stream:compute", late_device=True
)
def one_buffer_for_all_steps(events: list[Event], rng: Random) -> list[Event] | None:
    return [{**e, "name": "block_table"} if e["ev"] == "buffer" else e for e in events]


@_mutation("706", buffers=True, async_steps=True, streams=True, lane="stream:compute")
def more_read_than_valid(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "buffer", op="read"))
    if n is None:
        return None
    return [*events[:n], {**events[n], "extent": events[n]["extent"] + 3}, *events[n + 1 :]]


@_mutation("906", fingerprints=True)
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


@_mutation("104", keys=True)
def adapter_left_out_of_the_hash(events: list[Event], rng: Random) -> list[Event] | None:
    """Another adapter's content is published under a hash that is in use."""
    pubs = list(_where(events, "publish"))
    if len(pubs) < 2:
        return None
    a, b = events[pubs[0]], events[pubs[-1]]
    if a["key"] == b["key"]:
        b = {**b, "key": [*b["key"], "lora=other"]}
    b = {**b, "hashes": [a["hashes"][0], *b["hashes"][1:]]}
    return [*events[: pubs[-1]], b, *events[pubs[-1] + 1 :]]


@_mutation("501", tier="cpu", limits=True, tight=True, requests=14)
def cap_ignored(events: list[Event], rng: Random) -> list[Event] | None:
    if not any(e["ev"] == "load_begin" for e in events):
        return None
    return [{**e, "recovering_blocks": 0} if e["ev"] == "limits" else e for e in events]


@_mutation("704", tier="cpu", pins=True, tight=True, requests=14)
def unpinned_twice(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "unpin"))
    return None if n is None else [*events[: n + 1], events[n], *events[n + 1 :]]


@_mutation("101 102 103 708 105", cow=True, promote=True, requests=16)
def copy_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "copy"))
    return None if n is None else _without(events, n)


@_mutation("604", family="full_recurrent", tight=True)
def not_zeroed(events: list[Event], rng: Random) -> list[Event] | None:
    """Blocks that held a recurrent state go to attention as they are, and stay part filled."""
    out = [e for e in events if e["ev"] != "zero"]
    return out if len(out) < len(events) else None


@_mutation("705", tier="remote", streams=True, lease=True, tight=True, requests=14)
def lease_runs_out(events: list[Event], rng: Random) -> list[Event] | None:
    """The promise ends while the transfer runs, and the transfer says that all is well."""
    for n in _where(events, "load_end"):
        if events[n].get("ok", True):
            handle = events[n]["handle"]
            grants = [
                m for m in _where(events[:n], "lease", op="grant") if events[m]["handle"] == handle
            ]
            if grants:
                expire = {**events[grants[-1]], "op": "expire"}
                return [*events[:n], expire, *events[n:]]
    return None


@_mutation("203 201 204 403", layout=True)
def reader_of_another_format(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "kernel"))
    if n is None:
        return None
    expects = {**events[n]["expects"], "codec": "other/2"}
    return [*events[:n], {**events[n], "expects": expects}, *events[n + 1 :]]


@_mutation("703 702 709", tier="cpu", tight=True, streams=True, abort=True, requests=14)
def freed_under_a_load(events: list[Event], rng: Random) -> list[Event] | None:
    """An aborted request's blocks go to another before its load has ended."""
    for n in _where(events, "abort"):
        req = events[n]["req"]
        begun = {m: events[m] for m in _where(events[:n], "load_begin", req=req)}
        ended = {e["handle"] for e in events[:n] if e["ev"] == "load_end"}
        blocks = [b for e in begun.values() if e["handle"] not in ended for b in e["blocks"]]
        frees = [m for m in _where(events, "free", req=req, group="full") if m > n]
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
        return [*events[: n + 1], *theft, *_without(events, frees[0])[n + 1 :]]
    return None


@_mutation("903", tight=True)
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
    return _without(out, rng.choice(later)) if later else None


@_mutation("602", family="full_swa", tight=True, requests=12)
def window_decompressed(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, (n for n in _where(events, "resume") if "swa" in events[n]["route"]))
    if n is None:
        return None
    route = {**events[n]["route"], "swa": "decompress"}
    return [*events[:n], {**events[n], "route": route}, *events[n + 1 :]]


@_mutation("601", family="full_swa", tight=True)
def other_table_read(events: list[Event], rng: Random) -> list[Event] | None:
    """Full attention finds an id of the window's table in its row."""
    for n in _where(events, "use", group="full"):
        e = events[n]
        twins = _where(events[n : n + 12], "use", group="swa", req=e["req"], step=e["step"])
        twin = next(twins, None)
        if twin is not None and len(e["blocks"]) > 1:
            blocks = [*e["blocks"][:-1], events[n + twin]["blocks"][-1]]
            return [*events[:n], {**e, "blocks": blocks}, *events[n + 1 :]]
    return None


@_mutation("503", tier="cpu", streams=True, tight=True)
def signal_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = _pick(rng, _where(events, "signal"))
    return None if n is None else _without(events, n)


@_mutation("502", tier="cpu", limits=True, tight=True, requests=14)
def budget_ignored(events: list[Event], rng: Random) -> list[Event] | None:
    if not any(e["ev"] == "load_begin" for e in events):
        return None
    return [{**e, "recovering_bytes": 1} if e["ev"] == "limits" else e for e in events]


def _laid_out(events: list[Event], **changes: Any) -> list[Event]:
    n = next(_where(events, "group"))
    layout = {**events[n]["layout"], **changes}
    return [*events[:n], {**events[n], "layout": layout}, *events[n + 1 :]]


@_mutation("401", layout=True)
def base_off_the_grid(events: list[Event], rng: Random) -> list[Event] | None:
    return _laid_out(events, base=(1 << 30) + 8)


@_mutation("402", layout=True)
def region_too_short(events: list[Event], rng: Random) -> list[Event] | None:
    """The last block that is used ends behind the region."""
    layout = events[next(_where(events, "group"))]["layout"]
    last = max(b for e in events if e["ev"] == "write" for b in e["blocks"])
    return _laid_out(events, region_bytes=layout["stride_bytes"] * last)


@_mutation("404", layout=True)
def rows_too_wide(events: list[Event], rng: Random) -> list[Event] | None:
    layout = events[next(_where(events, "group"))]["layout"]
    out = _laid_out(events, row_bytes=layout["row_bytes"] * 2)
    return [e for e in out if e["ev"] != "kernel"]
