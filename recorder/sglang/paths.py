"""What a path of the tree leads to, read through the interface that both tree cores have.

A node is known outside the tree by its number only, so this holds for the Rust core too.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState

DIGEST_BYTES = 16


def hashes(key: Any, page: int, count: int) -> list[bytes]:
    """The hash of all tokens of a key up to the end of each of its first `count` pages."""
    tokens = key.raw_token_ids()
    more = 1 if key.is_bigram else 0
    spaces = f"{key.extra_key}\0{key.cache_salt}\0{more}".encode("utf-8", "replace")
    parent = blake2b(spaces, digest_size=DIGEST_BYTES).digest()
    out = []
    for i in range(count):
        part = bytes(tokens[i * page : (i + 1) * page + more])
        parent = blake2b(parent + part, digest_size=DIGEST_BYTES).digest()
        out.append(parent)
    return out


def full_pages(state: CacheState, core: Any, node: int) -> list[int]:
    """The pages of the full-attention pool from the beginning to the end of a node, or of the last
    before it that has any: a core may panic where it is asked for those of one that has none."""
    if state.full is None or core.is_root(node):
        return []
    if core.enable_hicache:
        resident = None
        for step in core.collect_path_info([node])[0]:
            if step.full_value_len is None:
                break
            resident = step.node_id
        if resident is None:
            return []
        node = resident
    return state.full.pages(core.collect_full_device_indices(node, core.root_node_handle()))


def window_pages(
    pool: PoolState, core: Any, component: Any, node: int, tokens: int
) -> tuple[list[tuple[int, list[int]]], int]:
    """The window pool's pages on the nodes that cover the last `tokens` before the end of a node,
    each run with its first token, and how many tokens these nodes cover."""
    runs: list[tuple[int, list[int]]] = []
    covered = 0
    path = () if core.is_root(node) else core.collect_path_info([node])[0]
    for step in reversed(path):
        if covered >= tokens:
            break
        value = core.get_component_device_value(step.node_id, component)
        if value is not None:
            runs.append((step.path_start, pool.pages(value)))
        covered += step.path_end - step.path_start
    return runs[::-1], covered


def state_of(state: CacheState, core: Any, node: int) -> list[int]:
    """The slot of the recurrent state at the end of a node; none where it has none."""
    if state.states is None or core.is_root(node):
        return []
    value = core.get_component_device_value(node, state.components[state.states.kind])
    return [] if value is None else state.states.pages(value)
