"""Shape of a trace: keys, types, declared names, handles that begin before they end.

Judges no state. The rules are those of the format's reference; an event that this lets through
can still be a fault of the engine, and that is the checker's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

_REQUIRED = {
    "trace": "format", "evidence": "evidence", "state": "pool blocks", "pool": "pool medium blocks",
    "group": "group form pool block_tokens", "kernel": "kernel group expects", "limits": "",
    "alloc": "blocks", "touch": "blocks", "free": "blocks", "publish": "group blocks hashes",
    "unpublish": "", "slide": "group req blocks", "remap": "pool map", "reset": "",
    "pin": "blocks", "unpin": "blocks", "write": "group blocks tokens",
    "seal": "group blocks version", "index": "group blocks version kv_version", "zero": "blocks",
    "copy": "src dst", "rollback": "req to", "buffer": "name op", "dispatch": "step",
    "retire": "step", "lookup": "req hit", "resume": "req at", "use": "group blocks",
    "select": "group req entries", "store_begin": "handle group blocks",
    "load_begin": "handle group blocks", "store_end": "handle", "load_end": "handle",
    "lease": "op handle", "signal": "event", "wait": "event", "admit": "req", "refuse": "req",
    "preempt": "req", "abort": "req", "finish": "req", "capture": "graph", "launch": "graph",
    "rebase": "", "weights": "version", "dropped": "count", "wire": "kind",
    "fingerprint": "group blocks values at",
}  # fmt: skip
_FORMS = {"compressed", "tail", "swa", "indexer", "recurrent"}
_MEDIA = {"gpu", "cpu", "disk", "remote"}
_BESIDE = ("hashes", "peer", "gens", "values")


def faults(events: Iterable[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of every malformed event."""
    pools: dict[str, int] = {}
    groups: dict[str, str] = {}
    handles: set[Any] = set()
    ranged: set[str] = set()
    for n, e in enumerate(events, 1):
        ev = e.get("ev")
        if n == 1 and (ev != "trace" or e.get("format") != "hkv/1"):
            yield n, "the first line is not the header of hkv/1"
        if ev not in _REQUIRED:
            yield n, f"unknown event {ev!r}"
            continue
        for key in _REQUIRED[ev].split():
            if key not in e:
                yield n, f"{ev}: key {key} is missing"
        if any(key.startswith("~") for key in e):
            yield n, "a mark was left behind"
        if ev == "pool":
            pools[e["pool"]] = e["blocks"]
            if e["medium"] not in _MEDIA:
                yield n, f"medium {e['medium']!r}"
        if ev == "group":
            groups[e["group"]] = e["pool"]
            if e["form"] not in _FORMS:
                yield n, f"form {e['form']!r}"
            if e["pool"] not in pools:
                yield n, f"pool {e['pool']!r} is not declared"
        elif e.get("group") is not None and e["group"] not in groups:
            yield n, f"group {e['group']!r} is not declared"
        if ev == "remap":
            ranged.add(e["pool"])
        yield from ((n, why) for why in _ids(e, pools, groups, ranged))
        for key in _BESIDE:
            beside = e.get(key)
            if ev != "unpublish" and isinstance(beside, list) and isinstance(e.get("blocks"), list):
                if len(beside) != len(e["blocks"]):
                    yield n, f"{key} and blocks differ in length"
        tokens = e.get("tokens")
        if ev in ("write", "publish", "seal", "index") and tokens is not None:
            if not (len(tokens) == 2 and 0 <= tokens[0] <= tokens[1]):
                yield n, f"tokens {tokens!r}"
        if ev in ("store_begin", "load_begin"):
            if e["handle"] in handles:
                yield n, f"handle {e['handle']!r} begins twice"
            handles.add(e["handle"])
        if ev in ("store_end", "load_end") and e.get("handle") not in handles:
            yield n, f"handle {e.get('handle')!r} ends before it begins"
        if "step" in e and not isinstance(e["step"], int):
            yield n, "step is no integer"


def _ids(
    e: dict[str, Any], pools: dict[str, int], groups: dict[str, str], ranged: set[str]
) -> Iterator[str]:
    """Block ids are integers inside their pool, unless a remap gives it logical ids."""
    if e["ev"] == "pool":
        return
    for key in ("blocks", "src", "dst"):
        ids = e.get(key)
        named = groups.get(e.get(f"{key}_group", ""))
        pool = named or e.get("pool") or groups.get(e.get("group", ""))
        if not isinstance(ids, list):
            continue
        if not all(type(x) is int for x in ids):
            yield f"{key}: not integers"
        elif pool in pools and pool not in ranged and any(x >= pools[pool] for x in ids):
            yield f"{key}: an id beyond pool {pool!r} of {pools[pool]}"
    by_group = e.get("blocks")
    for group, ids in by_group.items() if isinstance(by_group, dict) else ():
        if group not in groups:
            yield f"group {group!r} is not declared"
        elif any(type(x) is not int or x >= pools[groups[group]] for x in ids):
            yield f"blocks of {group!r}: an id beyond its pool"
