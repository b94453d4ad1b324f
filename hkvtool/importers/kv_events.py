"""One published KV event as a value, whoever published it and in whichever release.

vLLM and SGLang write `BlockStored`, `BlockRemoved` and `AllBlocksCleared`, as maps today and as
arrays before, whose later fields were appended over time; Mooncake writes maps by the fields of its
RFC; TensorRT-LLM writes JSON with a window. What an event does not say is None here and is left out
of the trace: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

MOST_HASHES = 1 << 20
"""Hashes of one event: no engine stores so many blocks in a step."""

_KINDS = {
    "BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared",
    "stored": "stored", "removed": "removed", "cleared": "cleared",
}  # fmt: skip

_ARRAYS: dict[str, tuple[str, ...]] = {
    "stored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
        "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window", "locality", "ownership", "session_id",
    ),
    "removed": ("block_hashes", "medium", "group_idx", "locality", "ownership"),
    "cleared": (),
}  # fmt: skip
"""Fields of an array event behind its tag, in the order in which releases added them."""

_MEDIA = {
    "gpu": "gpu", "device": "gpu", "vram": "gpu", "hbm": "gpu", "cuda": "gpu",
    "cpu": "cpu", "cpu_pinned": "cpu", "cpu_tier1": "cpu", "host": "cpu", "dram": "cpu",
    "host_pinned": "cpu", "memory": "cpu", "ram": "cpu",
    "disk": "disk", "storage": "disk", "cpu_tier2": "disk", "ssd": "disk", "nvme": "disk",
    "file": "disk", "local_disk": "disk", "fs": "disk",
    "external": "remote", "remote": "remote", "object": "remote", "network": "remote",
}  # fmt: skip

_LEVELS = ("gpu", "cpu", "disk")
"""Cache levels of TensorRT-LLM: the primary pool, the host's, what is beyond."""

_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,128})")


class Reject(ValueError):
    """An event that is not one, and why."""


@dataclass(frozen=True, slots=True)
class KvEvent:
    """One event: `hashes` as bytes, of which the last eight tell blocks apart. `facts` is what else
    it says of the blocks, by names that a trace keeps beside what it defines."""

    kind: str
    hashes: tuple[bytes, ...] = ()
    group: str | None = None
    medium: str | None = None
    parent: bytes | None = None
    number: int | None = None
    """The producer's own count of events, where it has one."""
    facts: Mapping[str, int | str] = field(default_factory=dict)


def events_of(value: Any) -> list[KvEvent]:
    """The events that one decoded message object stands for: one, or two where a block moved from
    one tier to another. Raises Reject."""
    if isinstance(value, dict) and isinstance(value.get("data"), dict):
        return _of_levels(value)
    return [_of_engine(value)]


def hash_bytes(value: Any) -> bytes:
    """A hash as bytes, at least eight: an integer by its 64-bit pattern, whatever its sign."""
    if isinstance(value, bool):
        raise Reject("a hash is true or false")
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise Reject("a hash of more than 64 bits")
        return (value & (1 << 64) - 1).to_bytes(8, "big")
    if isinstance(value, str):
        digits = _HEX.fullmatch(value)
        if not value or len(value) > 512:
            raise Reject(f"a hash of {len(value)} characters")
        if digits is None or len(digits[1]) < 8:
            return blake2b(value.encode("utf-8", "backslashreplace"), digest_size=8).digest()
        value = bytes.fromhex(digits[1].zfill(len(digits[1]) + len(digits[1]) % 2))
    if not isinstance(value, bytes):
        raise Reject(f"a hash that is {_named(value)}")
    if not 0 < len(value) <= 512:
        raise Reject(f"a hash of {len(value)} bytes")
    return value.rjust(8, b"\0")


def medium_of(value: Any) -> str | None:
    """Where bytes are, by an engine's word for it; None where nothing is said, or it is unknown."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Reject(f"a medium that is {_named(value)}")
    word = value.lower()
    return _MEDIA.get(word) or _MEDIA.get(word.partition("_")[0])


def _of_engine(value: Any) -> KvEvent:
    """An event of vLLM, SGLang or Mooncake."""
    kind, data = _fields(value)
    group = data.get("group_idx", data.get("group_id"))
    if group is not None and not isinstance(group, (int, str)):
        raise Reject(f"a group that is {_named(group)}")
    facts: dict[str, int | str] = {}
    where = medium_of(data.get("medium"))
    if data.get("locality") in ("REMOTE", "remote"):
        where = "remote"
    if data.get("medium") is not None and str(data["medium"]).lower() != where:
        facts["tier"] = str(data["medium"])[:64]
    for key, name in (
        ("block_size", "block_tokens"), ("kv_cache_spec_kind", "spec"),
        ("kv_cache_spec_sliding_window", "window"), ("base_block_idx", "first_block"),
        ("backend_id", "backend"),
    ):  # fmt: skip
        _fact(facts, name, data.get(key))
    if facts.get("block_tokens") == 0:
        # A placeholder of lower tiers.
        del facts["block_tokens"]
    parent = data.get("parent_block_hash", data.get("parent_hash"))
    return KvEvent(
        kind,
        () if kind == "cleared" else _hashes(data),
        None if group is None else f"group{group}"[:64],
        where,
        None if parent is None else hash_bytes(parent),
        count_of(data.get("event_id")),
        facts,
    )


def _fields(value: Any) -> tuple[str, Mapping[str, Any]]:
    """The kind of an event and its fields by name, of a map or an array."""
    if isinstance(value, dict):
        tag = value.get("event_type", value.get("type"))
        kind = _KINDS.get(tag) if isinstance(tag, str) else None
        if kind is None:
            raise Reject(f"an event whose type is {_named(tag)}")
        return kind, value
    if isinstance(value, (list, tuple)):
        tag = value[0] if value else None
        kind = _KINDS.get(tag) if isinstance(tag, str) else None
        if kind is None:
            raise Reject(f"an array event whose type is {_named(tag)}")
        return kind, dict(zip(_ARRAYS[kind], value[1:], strict=False))
    raise Reject(f"an event that is {_named(value)}")


def _hashes(data: Mapping[str, Any]) -> tuple[bytes, ...]:
    found = next((data[k] for k in ("block_hashes", "seq_hashes") if k in data), None)
    if found is None and isinstance(data.get("blocks"), list):
        found = [b.get("block_hash") if isinstance(b, dict) else b for b in data["blocks"]]
    if not isinstance(found, (list, tuple)):
        raise Reject(f"hashes that are {_named(found)}")
    if len(found) > MOST_HASHES:
        raise Reject(f"{len(found):,} hashes in one event")
    return tuple(map(hash_bytes, found))


def _of_levels(value: Mapping[str, Any]) -> list[KvEvent]:
    """An event of TensorRT-LLM. A window is a group: blocks of another are of another pool."""
    data = value["data"]
    window = count_of(value.get("window_size"))
    number = count_of(value.get("event_id"))
    group = None if window is None else f"window{window}"
    facts: dict[str, int | str] = {} if window is None else {"window": window}
    kind = data.get("type")
    if kind == "created":
        return []
    if kind == "stored":
        return _stored_by_level(data, group, number, facts)
    if kind == "removed":
        return [KvEvent("removed", _hashes(data), group, None, None, number, facts)]
    if kind == "updated":
        hashes = (hash_bytes(data.get("block_hash")),)
        change = data.get("cache_level")
        if not isinstance(change, dict):
            return []
        old, new = (_level(change.get(key)) for key in ("old_value", "new_value"))
        if old == new:
            return []
        return [
            KvEvent("removed", hashes, group, old, None, number, facts),
            KvEvent("stored", hashes, group, new, None, number, facts),
        ]
    raise Reject(f"an event whose type is {_named(kind)}")


def _stored_by_level(
    data: Mapping[str, Any], group: str | None, number: int | None, facts: Mapping[str, int | str]
) -> list[KvEvent]:
    blocks = data.get("blocks")
    if not isinstance(blocks, list) or len(blocks) > MOST_HASHES:
        raise Reject("a stored event without a list of blocks")
    by_level: dict[str, list[bytes]] = {}
    told = dict(facts)
    for block in blocks:
        if not isinstance(block, dict):
            raise Reject(f"a block that is {_named(block)}")
        where = _level(block.get("cache_level"))
        by_level.setdefault(where, []).append(hash_bytes(block.get("block_hash")))
        if isinstance(block.get("tokens"), list) and block["tokens"]:
            told["block_tokens"] = max(int(told.get("block_tokens", 0)), len(block["tokens"]))
    parent = data.get("parent_hash")
    before = None if parent is None else hash_bytes(parent)
    return [
        KvEvent("stored", tuple(hashes), group, where, before, number, told)
        for where, hashes in by_level.items()
    ]


def _level(value: Any) -> str:
    level = count_of(value)
    return _LEVELS[min(level or 0, len(_LEVELS) - 1)]


def count_of(value: Any) -> int | None:
    """A number from 0 on, or None. Raises Reject."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise Reject(f"{_named(value)} in place of a count")
    return value


def _fact(facts: dict[str, int | str], name: str, value: Any) -> None:
    if isinstance(value, str) and value:
        facts[name] = value[:64]
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62:
        facts[name] = value


def _named(value: Any) -> str:
    """What a value is instead, without its content: that may be somebody's."""
    if value is None:
        return "missing"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return "a list"
    return {dict: "a map", str: "text", bytes: "bytes", int: "a number", float: "a fraction"}.get(
        type(value), f"a {type(value).__name__}"
    )
