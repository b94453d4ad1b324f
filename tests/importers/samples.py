"""The samples of `fixtures/imports`, as they were made: `python samples.py FOLDER` makes them anew.

Each has the shape that its producer writes, by the field names and framing of that producer's
public sources; the values are made up. Nothing in them was recorded.
"""

from __future__ import annotations

import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import msgpack


def dynamo() -> bytes:
    """Two workers; the second stores again what it lost, and is cleared in the end."""

    def line(ms: int, worker: int, number: int, data: Any, rank: int = 0) -> str:
        event = {"event_id": number, "data": data, "dp_rank": rank}
        routed = {"worker_id": worker, "storage_tier": "device", "event": event}
        return json.dumps({"timestamp": ms, "event": routed})

    def stored(parent: int | None, *hashes: int) -> Any:
        blocks = [
            {"block_hash": h, "tokens_hash": h ^ 0xFFFF, "mm_extra_info": None} for h in hashes
        ]
        return {"stored": {"parent_hash": parent, "blocks": blocks}}

    a, b, c = 0xF1E2D3C4B5A69788, 0x0123456789ABCDEF, 0x8000000000000001
    lines = [
        line(0, 7, 0, stored(None, a, b)),
        line(12, 9, 0, stored(None, a)),
        line(13, 7, 1, stored(b, c)),
        line(20, 9, 1, {"removed": {"block_hashes": [a]}}),
        line(31, 9, 2, stored(None, a, b), rank=0),
        line(45, 7, 2, {"removed": {"block_hashes": [c]}}),
        line(60, 9, 3, "cleared"),
    ]
    return "\n".join(lines).encode() + b"\n"


def trtllm() -> bytes:
    """Full attention and a window, two levels; a block goes to the host and comes back."""

    def event(number: int, window: int, **data: Any) -> dict[str, Any]:
        return {"event_id": number, "data": data, "window_size": window}

    def block(name: int, level: int = 0) -> dict[str, Any]:
        tokens = [{"type": "unique_token", "token_id": t, "token_extra_id": 0} for t in range(32)]
        return {"type": "stored_block", "block_hash": name, "tokens": tokens,
                "cache_level": level, "priority": 35}  # fmt: skip

    def diff(old: int, new: int) -> dict[str, Any]:
        return {"type": "event_diff", "new_value": new, "old_value": old}

    events = [
        event(0, 8192, type="created", num_blocks_per_cache_level=[101, 256]),
        event(1, 1024, type="created", num_blocks_per_cache_level=[64, 0]),
        event(2, 8192, type="stored", parent_hash=None, blocks=[block(11), block(12)]),
        event(3, 1024, type="stored", parent_hash=None, blocks=[block(11), block(12)]),
        event(4, 8192, type="updated", block_hash=12, cache_level=diff(0, 1), priority=None),
        event(5, 1024, type="removed", block_hashes=[11]),
        event(6, 8192, type="updated", block_hash=12, cache_level=diff(1, 0), priority=None),
        event(7, 8192, type="removed", block_hashes=[12, 11]),
    ]
    return json.dumps(events, indent=1).encode() + b"\n"


def canary() -> bytes:
    """Two violations among other lines of a server's log."""
    return (
        b"[2026-11-29 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0\n"
        b"[2026-11-29 12:00:01 TP0] kv_canary violation: launch_tag=HEAD_K_FULL "
        b"fail_reason=verify_chain_hash+verify_position slot_idx=17 position=42 stored_token=111 "
        b"expected_token=0 stored_chain_hash=0x1111111111111111 expected_aux=0x2222222222222222\n"
        b"KV cache canary violation detected (kernel_kind=HEAD_K_FULL, slot_idx=17, position=42)\n"
        b"[2026-11-29 12:00:02 TP0] kv_canary violation: launch_tag=TAIL_K_SWA "
        b"fail_reason=verify_token slot_idx=5 position=7 stored_token=9 expected_token=8 "
        b"stored_chain_hash=0x00000000000000aa expected_aux=0x00000000000000aa\n"
        b"[2026-11-29 12:00:03 TP0] Decode batch, #running-req: 1\n"
    )


def _frames(level: str, records: list[tuple[float, str, Any]]) -> bytes:
    header = {
        "type": "header", "magic": b"LMCT", "format_version": 1, "level": level,
        "lmcache_version": "0.5.6", "t_mono_start": 100.0, "t_wall_start": 1.7e9,
        "sm_config_json": "{}", "sm_config_digest": "",
    }  # fmt: skip
    frames: list[Any] = [header]
    for at, name, args in records:
        frames.append(
            {"type": "record", "t_mono": at, "t_wall": 1.7e9 + at, "qualname": name, "args": args}
        )
    packed = [msgpack.packb(frame) for frame in frames]
    return b"".join(struct.pack(">I", len(data)) + data for data in packed)


def lmcache_storage() -> bytes:
    """A prompt is looked for, read, and its rest written."""
    manager = "lmcache.v1.distributed.storage_manager.StorageManager."

    def key(name: int) -> dict[str, Any]:
        fields = {"chunk_hash": name.to_bytes(32, "big"), "model_name": "m", "kv_rank": 0,
                  "object_group_id": 0}  # fmt: skip
        return {"__t__": "ObjectKey", "v": fields}

    layout = {
        "__t__": "MemoryLayoutDesc",
        "v": {"shapes": [[2, 256, 8]], "dtypes": ["torch.bfloat16"]},
    }
    spec = {"__t__": "PrefetchRequestSpec", "v": {"keys": [key(1), key(2)], "num_kv_readers": 1}}
    handle = {
        "__t__": "PrefetchHandle",
        "v": {"prefetch_request_id": 1, "external_request_id": "chat-1"},
    }
    return _frames("storage", [
        (0.01, manager + "submit_prefetch_task", {"spec": spec, "external_request_id": "chat-1"}),
        (0.02, manager + "read_prefetched_results", {"keys": [key(1)], "handle": handle}),
        (0.03, manager + "finish_read_prefetched", {"keys": [key(1)]}),
        (0.05, manager + "reserve_write", {"keys": [key(2), key(3)], "layout_desc": layout}),
    ])  # fmt: skip


def lmcache_events() -> bytes:
    """One instance, started anew once; two tiers."""

    def batch(seq: int, kind: str, tier: str, backend: str, keys: list[int], run: int = 0) -> Any:
        entries = [
            {"key": f"m@0x0@0@{k:064x}", "size_bytes": 4096, "token_ids": [], "token_offset": -1}
            for k in keys
        ]
        return {"batch": {
            "instance_id": "mp-0", "incarnation": run, "seq": seq, "event_type": kind, "tier": tier,
            "backend": backend, "entries": entries, "ts": 1.7e9,
        }}  # fmt: skip

    name = "lmcache.v1.mp_coordinator.CacheEvents.publish"
    return _frames("events", [
        (0.1, name, batch(1, "store", "l1", "dram", [1, 2])),
        (0.2, name, batch(2, "store", "l2", "fs", [1])),
        (0.3, name, batch(3, "access", "l1", "", [1])),
        (0.4, name, batch(4, "delete", "l1", "dram", [2])),
        (9.0, name, batch(1, "store", "l1", "dram", [1], run=1)),
    ])  # fmt: skip


def torch_memory() -> bytes:
    """One layer's cache taken, given back for sleep, and taken again elsewhere; and weights."""

    def frames(file: str, name: str) -> list[dict[str, Any]]:
        return [
            {"filename": "/site-packages/torch/utils/_device.py", "line": 109, "name": "__call__"},
            {"filename": f"/site-packages/vllm/v1/worker/{file}", "line": 5100, "name": name},
        ]

    kv = frames("gpu_model_runner.py", "_allocate_kv_cache_tensors")
    weights = frames("gpu_model_runner.py", "load_model")
    first, second, other = 0x7F0000000000, 0x7F4000000000, 0x7F2000000000
    size = 64 << 20

    def entry(action: str, address: int, at: int, stack: Any) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "stream": 0, "frames": stack,
                "time_us": 1_700_000_000_000_000 + at}  # fmt: skip

    def segment(address: int, state: str, stack: Any) -> dict[str, Any]:
        block = {"address": address, "size": size, "requested_size": size - 512, "state": state,
                 "frames": stack}  # fmt: skip
        return {"device": 0, "address": address, "total_size": size, "stream": 0,
                "segment_type": "large", "is_expandable": False, "blocks": [block]}  # fmt: skip

    return pickle.dumps({
        "segments": [
            segment(second, "active_allocated", kv), segment(other, "active_allocated", weights),
            segment(first, "inactive", []),
        ],
        "device_traces": [[
            entry("alloc", other, 1, weights), entry("alloc", first, 5, kv),
            entry("free_requested", first, 90, []), entry("free_completed", first, 91, []),
            entry("alloc", second, 200, kv),
        ]],
        "allocator_settings": {"expandable_segments": False},
    }, protocol=4)  # fmt: skip


def mooncake() -> bytes:
    """Three requests that share a beginning."""
    rows: list[dict[str, Any]] = [
        {"timestamp": 0, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]},
        {"timestamp": 900, "input_length": 1400, "output_length": 30, "hash_ids": [0, 2, 3]},
        {"timestamp": 2500, "input_length": 1500, "output_length": 10, "hash_ids": [0, 2, 4]},
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def cache_files(folder: Path) -> None:
    """vLLM's layout: one file is cut, one lies where nobody looks."""
    base = folder / "org_model_0123456789ab"
    base.mkdir(parents=True)
    (base / "config.json").write_text(json.dumps({
        "model_name": "org/model", "tokens_per_hash": 16, "blocks_per_file": 1, "dtype": "torch.bfloat16",
        "kv_cache_groups": [{"tokens_per_block": 16, "layer_names": ["layers.0.attn"]}],
        "inference_engine": "vllm",
    }))  # fmt: skip
    for i in range(4):
        digest = f"{i * 0x1111:04x}{'0123456789abcdef' * 4}"[:64]
        where = base.with_name(base.name + "_r0") / digest[:3] / f"{digest[3:5]}_g0"
        if i == 2:
            where = where.parent.with_name("fff") / where.name
        where.mkdir(parents=True)
        (where / f"{digest}.bin").write_bytes(b"\0" * (512 if i != 3 else 300))


FILES = {
    "dynamo.jsonl": dynamo,
    "trtllm.json": trtllm,
    "kv-canary.log": canary,
    "lmcache-storage.lct": lmcache_storage,
    "lmcache-events.lct": lmcache_events,
    "torch-memory.pickle": torch_memory,
    "mooncake.jsonl": mooncake,
}


def make(folder: Path) -> None:
    """Write every sample."""
    for name, made in FILES.items():
        (folder / name).write_bytes(made())
    cache_files(folder / "vllm-cache")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
