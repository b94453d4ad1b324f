"""What an event does, in a sentence: the words of a story about a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.events import DEFAULT_ACTOR, check_keys
from hkvtool.model.text import compact, event_line, shown


def sentence(event: Event) -> str:
    """One event in words; one that cannot be taken at its word as it stands."""
    tell = _TOLD.get(event.ev)
    if tell is None or event.problem is not None or check_keys(dict(event.data)) is not None:
        return event_line(event)
    return tell(event.data)


def lane(event: Event) -> str:
    """Who does it."""
    return shown(event.actor)


def _who(d: Mapping[str, Any]) -> str:
    for key in ("req", "owner"):
        if d.get(key) is not None:
            return shown(d[key])
    return shown(d.get("actor", "step" if "step" in d else DEFAULT_ACTOR))


def _blocks(d: Mapping[str, Any], key: str = "blocks") -> str:
    listed = d.get(key) or []
    if not listed:
        return "no block"
    text = compact(list(listed))[1:-1]
    return f"block {text}" if len(listed) == 1 else f"blocks {text}"


def _place(d: Mapping[str, Any]) -> str:
    place = d.get("group", d.get("pool"))
    return "" if place is None else f" of {shown(place)}"


def _tokens(d: Mapping[str, Any]) -> str:
    tokens = d.get("tokens")
    return f", tokens {tokens[0]} to {tokens[1]}" if isinstance(tokens, list) else ""


def _step(d: Mapping[str, Any]) -> str:
    return f" in step {d['step']}" if "step" in d else ""


def _hashes(d: Mapping[str, Any]) -> str:
    names = [shown(h) for h in d.get("hashes") or ()]
    text = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"hash {text}" if len(names) == 1 else f"hashes {text}"


def _by_group(said: Mapping[str, Any]) -> str:
    parts = [f"{shown(g)} {compact(v)[1:-1] or 'nothing'}" for g, v in said.items()]
    return "; ".join(parts) or "nothing"


def _alloc(d: Mapping[str, Any]) -> str:
    return f"{_who(d)} is given {_blocks(d)}{_place(d)}{_tokens(d)}"


def _free(d: Mapping[str, Any]) -> str:
    return f"{_who(d)} lets go of {_blocks(d)}{_place(d)}"


def _publish(d: Mapping[str, Any]) -> str:
    return f"{_hashes(d)} now leads to {_blocks(d)}{_place(d)}{_tokens(d)}"


def _unpublish(d: Mapping[str, Any]) -> str:
    why = f" ({shown(d['reason'])})" if "reason" in d else ""
    what = _hashes(d) if "hashes" in d else f"the hashes of {_blocks(d)}"
    return f"{what}{_place(d)} can no longer be hit{why}"


def _writes(verb: str) -> Callable[[Mapping[str, Any]], str]:
    def told(d: Mapping[str, Any]) -> str:
        pad = "padding rows " if d.get("pad") else ""
        return f"{_who(d)} {verb} {pad}{_blocks(d)}{_place(d)}{_tokens(d)}{_step(d)}"

    return told


def _index(d: Mapping[str, Any]) -> str:
    return f"{_writes('indexes')(d)}, of KV version {d['kv_version']}"


def _lookup(d: Mapping[str, Any]) -> str:
    hits = ", ".join(f"{shown(g)} {t:,}" for g, t in d["hit"].items()) or "nothing"
    asked = f"{d['tokens']:,} tokens" if "tokens" in d else "its prefix"
    return f"{_who(d)} looks {asked} up and finds {hits}"


def _resume(d: Mapping[str, Any]) -> str:
    brought = f", from {_by_group(d['blocks'])}" if "blocks" in d else ""
    return f"{_who(d)} resumes at token {d['at']:,}{brought}"


def _begin(verb: str, key: str, word: str) -> Callable[[Mapping[str, Any]], str]:
    def told(d: Mapping[str, Any]) -> str:
        far = f" {word} {shown(d[key])}" if key in d else ""
        peers = f" {compact(list(d['peer']))[1:-1]}" if d.get("peer") else ""
        name = shown(d["handle"])
        return f"{verb} {name} begins: {_blocks(d)}{_place(d)}{far}{peers}{_tokens(d)}"

    return told


def _end(d: Mapping[str, Any]) -> str:
    said = "ends" if d.get("ok", True) else "fails"
    failed = f", {_blocks(d, 'failed')} did not arrive" if d.get("failed") else ""
    return f"transfer {shown(d['handle'])} {said}{failed}"


def _copy(d: Mapping[str, Any]) -> str:
    return f"{_blocks(d, 'src')} is copied to {_blocks(d, 'dst')}{_place(d)}"


def _buffer(d: Mapping[str, Any]) -> str:
    verb = "reads" if d["op"] == "read" else "writes"
    version = f" (version {d['version']})" if "version" in d else ""
    return f"{_who(d)} {verb} buffer {shown(d['name'])}{version}{_step(d)}"


def _life(words: str) -> Callable[[Mapping[str, Any]], str]:
    def told(d: Mapping[str, Any]) -> str:
        reason = f" ({shown(d['reason'])})" if "reason" in d else ""
        needs = f", needs {d['needs']} of {d['free']} free" if {"needs", "free"} <= d.keys() else ""
        return f"{_who(d)} {words}{needs}{reason}"

    return told


def _dropped(d: Mapping[str, Any]) -> str:
    return f"the recorder lost {d['count']:,} events here"


_TOLD: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "alloc": _alloc,
    "touch": lambda d: f"{_who(d)} takes one more reference on {_blocks(d)}{_place(d)}",
    "free": _free,
    "publish": _publish,
    "unpublish": _unpublish,
    "slide": lambda d: f"the window of {_who(d)} leaves {_blocks(d)}{_place(d)}",
    "remap": lambda d: f"blocks of {shown(d['pool'])} move: {compact(d['map'])[1:-1]}",
    "reset": lambda d: f"every hash{_place(d)} is gone",
    "pin": lambda d: f"{_who(d)} pins {_blocks(d)}{_place(d)}",
    "unpin": lambda d: f"{_who(d)} unpins {_blocks(d)}{_place(d)}",
    "write": _writes("writes"),
    "seal": _writes("seals"),
    "index": _index,
    "zero": lambda d: f"{_blocks(d)}{_place(d)} is cleared{_step(d)}",
    "copy": _copy,
    "rollback": lambda d: f"tokens of {_who(d)} from {d['to']:,} on are rejected",
    "buffer": _buffer,
    "dispatch": lambda d: f"step {d['step']} is handed to the device",
    "retire": lambda d: f"step {d['step']} is known to be done",
    "lookup": _lookup,
    "resume": _resume,
    "use": _writes("reads"),
    "store_begin": _begin("store", "to", "to"),
    "load_begin": _begin("load", "from", "from"),
    "store_end": _end,
    "load_end": _end,
    "lease": lambda d: f"lease {d['op']} for transfer {shown(d['handle'])}",
    "signal": lambda d: f"{_who(d)} signals {shown(d['event'])}",
    "wait": lambda d: f"{_who(d)} waits for {shown(d['event'])}",
    "admit": _life("is admitted"),
    "refuse": _life("must wait"),
    "preempt": _life("is preempted"),
    "abort": _life("is aborted"),
    "finish": _life("ends"),
    "capture": lambda d: f"graph {shown(d['graph'])} is captured",
    "launch": lambda d: f"graph {shown(d['graph'])} is launched{_step(d)}",
    "rebase": lambda d: f"addresses{_place(d)} change ({shown(d.get('reason', 'no reason'))})",
    "weights": lambda d: f"the weights become version {shown(d['version'])}",
    "dropped": _dropped,
}
