"""What the engine has, told before it does anything; and what it holds, at a late attach."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.transformers.cache_state import TRASH_SECTORS, CacheState, GroupState
from hkvtool.recorder.transformers.hooks import Hooks

OVERLAID = (
    "groups hand out sectors of one buffer among themselves: that the same bytes become another "
    "group's is not told"
)


def declare(hooks: Hooks, cache: Any) -> CacheState:
    """Tell the pools and groups of a cache."""
    state = hooks.adopt(cache)
    unseen = [g.name for g in state.groups.values() if not g.told]
    hooks.begin(OVERLAID)
    if unseen:
        note = f"what {', '.join(unseen)} writes is not told: its window is no multiple of its page"
        hooks.tell.event({"ev": "evidence", "evidence": list(hooks.evidence), "note": note})
    for kind, group in state.groups.items():
        if group.window is None:
            group.table_index = hooks.tables
            hooks.tables += 1
        _declare_group(hooks, state, kind, group)
    return state


def _declare_group(hooks: Hooks, state: CacheState, kind: str, group: GroupState) -> None:
    allocator = group.allocator
    per_sector = int(allocator.blocks_per_sector)
    trash = TRASH_SECTORS * per_sector
    hooks.tell.event({
        "ev": "pool", "pool": group.name, "medium": "gpu", "engine": state.engine,
        "blocks": int(allocator.num_blocks) + trash, "reserved": list(range(trash)),
        "zeroed": True,
    })  # fmt: skip
    event = _group(group, group.name, kind)
    if group.table_index is not None:
        event["table_index"] = group.table_index
    if not group.told:
        event["participates"] = False
    event["layout"] = _layout(state, group)
    hooks.tell.event(event)


def _group(group: GroupState, pool: str, kind: str) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ev": "group", "group": pool, "pool": pool, "block_tokens": group.unit,
        "form": "compressed" if group.window is None else "swa",
        "layers": [int(i) for i in group.allocator.layer_indices],
    }  # fmt: skip
    if group.window is not None:
        event["window"] = group.window
    return event


def _layout(state: CacheState, group: GroupState) -> dict[str, Any]:
    """A block is a page for each layer, a page its keys and then its values."""
    allocator = group.allocator
    page, tokens = int(allocator.bytes_per_page), int(allocator.tokens_per_page)
    return {
        "dtype": str(allocator.cache_dtype).removeprefix("torch."), "codec": "identity/1",
        "order": "block,layer,kv,token,head,dim", "storage": state.engine,
        "page_bytes": page, "row_bytes": page // tokens, "layer_stride_bytes": page,
        "stride_bytes": int(allocator.bytes_per_block), "offset": 0,
        "region_bytes": int(state.cache.cache_tensor.numel()),
    }  # fmt: skip


def declare_tier(hooks: Hooks, state: CacheState, pool: Any) -> None:
    """Tell the memory of the host that requests are put aside to."""
    for kind, group in state.groups.items():
        blocks = int(pool.num_sectors) * int(group.allocator.blocks_per_sector)
        group.tier = f"{group.name}.cpu"
        hooks.tell.event({
            "ev": "pool", "pool": group.tier, "medium": "cpu", "engine": state.engine,
            "blocks": blocks,
        })  # fmt: skip
        hooks.tell.event({**_group(group, group.tier, kind), "participates": False})


def tell_state(hooks: Hooks, state: CacheState) -> None:
    """What a cache holds that was there before anybody followed it."""
    for group in state.groups.values():
        allocator = group.allocator
        tables = allocator.block_table
        refs: dict[int, int] = {}
        owners: dict[int, str] = {}
        for req, table in tables.items():
            for block in table:
                refs[block] = refs.get(block, 0) + 1
                owners.setdefault(block, req)
        hashes = allocator.ledger.block_to_hash
        blocks = sorted({*refs, *hashes, *allocator.ledger.cached_blocks})
        hooks.live.update(tables)
        if blocks:
            hooks.tell.event({
                "ev": "state", "pool": group.name, "blocks": blocks,
                "refs": [refs.get(b, 0) for b in blocks],
                "owners": [owners.get(b) for b in blocks],
                "groups": [group.name] * len(blocks),
                "hashes": [hooks.keyed(hashes[b]) if b in hashes else None for b in blocks],
            })  # fmt: skip
