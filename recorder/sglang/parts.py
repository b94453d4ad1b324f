"""What lies beside one another in a page: several contents that share its number, and come and go
with it.

DeepSeek-V4 keeps of a page of `full` its histories in each ratio of compression and the rows that
route to them, and of a page of `swa` what its compressors have open; sparse attention of V3.2 keeps
rows that route beside its latent rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.recorder.sglang.layouts import of_blocks, of_device

Part = dict[str, Any]
"""Keys of a `group` event; `group` is what is added to the pool's name, nothing for the first."""

_OVERLAPPING = 4
"""The ratio whose units reach into those before them, by as many tokens."""


def compressing(pool: Any) -> bool:
    """Whether a pool is one of compressed histories, of the kind whose parts lie in pages."""
    return (
        hasattr(pool, "compress_state_pools") and getattr(pool, "swa_kv_pool", None) is not None
        and not pool._unified_kv
    )  # fmt: skip


def otherwise(pool: Any) -> bool:
    """Whether it is one of compressed histories whose parts lie in some other way."""
    return hasattr(pool, "compress_state_pools") and not compressing(pool)


def of_page(pool: Any, kind: str, page: int) -> list[Part]:
    """The parts of a page of full attention or of the window, the first of them its own."""
    if compressing(pool):
        return list((_compressed if kind == "full" else _window)(pool, page))
    near = getattr(pool, f"{kind}_kv_pool", pool)
    first: Part = {"group": "", **_laid(of_device(near, page))}
    rows = getattr(near, "index_key_cache", None)
    return [first] if rows is None else [first, _routing(near, rows, page)]


def open_units(pool: Any) -> list[Part]:
    """What compressors keep by request: a ring for each row of requests, in a pool of its own."""
    if not compressing(pool):
        return []
    return [
        {
            "group": f"c{ratio}_state", "form": "tail", "block_tokens": ratio, "window": ratio,
            "serves": _history(pool, ratio), **_laid(_rings(states)),
        }
        for ratio, states in _by_ratio(pool.compress_state_pools)
        if states[0].request_scoped
    ]  # fmt: skip


def _laid(layout: dict[str, Any]) -> Part:
    return {"layout": layout} if layout else {}


def _ratios(pool: Any) -> list[int]:
    """The one that is told as the page's own comes first."""
    return sorted(pool.present_ratios, key=lambda ratio: (ratio != _OVERLAPPING, ratio))


def _history(pool: Any, ratio: int) -> str:
    """What the group of a ratio is called behind its pool."""
    return "" if ratio == _ratios(pool)[0] else f".c{ratio}"


def _compressed(pool: Any, page: int) -> Iterator[Part]:
    for ratio in _ratios(pool):
        rows = pool.kv_pools[ratio]
        yield {
            "group": _history(pool, ratio), "ratio": ratio,
            **_laid(_packed(rows, page // ratio)),
        }  # fmt: skip
    for ratio, rows in pool.index_pools.items():
        if ratio in pool.present_ratios:
            scale = rows.get_bytes_per_token() - rows.index_head_dim // (1 + rows.use_fp4_indexer)
            yield {
                "group": f"{_history(pool, ratio)}.indexer", "form": "indexer", "ratio": ratio,
                "serves": _history(pool, ratio),
                **_laid(of_blocks(
                    rows.contiguous_page_row_buffers(), max(1, page // ratio // rows.page_size),
                    row_bytes=rows.get_bytes_per_token(), scale_bytes=scale,
                    dtype="float4_e2m1fn_x2" if rows.use_fp4_indexer else "float8_e4m3fn",
                    codec=f"dsv4_index_fp{4 if rows.use_fp4_indexer else 8}/1",
                )),
            }  # fmt: skip


def _packed(rows: Any, entries: int) -> dict[str, Any]:
    """Entries of which a page has all data first, then all scales, or one behind the other."""
    plain = rows.kv_buffer[0].dtype.itemsize == 1 and not hasattr(rows.kv_layout, "scale_bytes")
    return of_blocks(
        rows.kv_buffer, max(1, entries // rows.page_size), row_bytes=rows.get_bytes_per_token(),
        scale_bytes=0 if plain else rows.get_bytes_per_token() - rows.kv_layout.data_bytes,
        dtype=str(rows.dtype).removeprefix("torch."), codec=f"dsv4_{rows.kv_layout.value}/1",
    )  # fmt: skip


def _window(pool: Any, page: int) -> Iterator[Part]:
    yield {"group": "", **_laid(_packed(pool.swa_kv_pool, page))}
    kept = [("state", pool.compress_state_pools, ""),
            ("indexer_state", pool.indexer_compress_state_pools, ".indexer")]  # fmt: skip
    for name, states, of in kept:
        for ratio, mine in _by_ratio(states):
            if not mine[0].request_scoped:
                yield {
                    "group": f".c{ratio}_{name}", "form": "tail", "window": 2 * ratio,
                    "overlap": ratio, "serves": f"{_history(pool, ratio)}{of}",
                    **_laid(_rings(mine)),
                }  # fmt: skip


def _by_ratio(states: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """The compressors' pools of each ratio, one for each of its layers."""
    mine = [one for one in states if one is not None]
    for ratio in dict.fromkeys(one.ratio for one in mine):
        yield ratio, [one for one in mine if one.ratio == ratio]


def _rings(states: list[Any]) -> dict[str, Any]:
    """Of a ring only the last tokens are there, so that no row says how many a block holds."""
    rows = [one.kv_score_buffer.kv_score for one in states]
    return of_blocks(
        rows, states[0].ring_size, dtype=str(rows[0].dtype).removeprefix("torch."),
        codec="kv_score/1", ring_rows=states[0].ring_size,
    )  # fmt: skip


def _routing(pool: Any, rows: Any, page: int) -> Part:
    """Rows that route, in pages that have all keys first and then all scales."""
    row = pool.index_head_dim + pool.index_head_dim // pool.quant_block_size * 4
    filled = [t for t in rows.buffer if t.shape[0]]
    layout = of_blocks(
        filled, 1, row_bytes=row, scale_bytes=row - pool.index_head_dim, dtype="float8_e4m3fn",
        codec="dsa_index_fp8/1",
    ) if page == pool.page_size else {}  # fmt: skip
    return {
        "group": ".indexer", "form": "indexer", "serves": "", "ratio": int(pool.index_kpool),
        **_laid(layout),
    }  # fmt: skip
