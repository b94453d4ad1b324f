"""Where the bytes of a group lie: all that is needed to make its views again with torch alone."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.vllm import specs
from hkvtool.recorder.vllm.specs import Part

STORAGE = "kv"
"""All groups lie over one another in one buffer of the worker."""


def layout(config: Any, part: Part) -> dict[str, Any]:
    """`layout` keys of one part of a group; fewer where the engine has not laid it out yet."""
    spec = part.spec
    out: dict[str, Any] = {"dtype": specs.dtype(spec), "codec": specs.codec(spec)}
    ratio = getattr(spec, "tokens_per_state", 1)
    entries = spec.block_size // ratio if ratio and ratio > 0 else 1
    content = _content(spec)
    if content is not None and entries:
        heads = int(getattr(spec, "num_heads", 1) or 1)
        out["page_bytes"] = int(content * heads * entries)
        if getattr(spec, "shapes", None) is None:
            out["row_bytes"] = int(content * heads)
        out["axes"] = {"heads": heads, "entries": int(entries), "content": int(content)}
    tensors = _tensors(config, part)
    if not tensors:
        return out
    first = tensors[0]
    order = getattr(config, "kv_cache_layout", None)
    out.update(
        storage=STORAGE,
        region_bytes=int(first.size),
        stride_bytes=int(first.block_stride),
        layer_stride_bytes=int(first.layer_stride),
        offset=int(first.offset),
        order=str(getattr(order, "name", order) or "LBHNC"),
    )
    # Layers of one part may lie in several stretches of the buffer.
    out["stretches"] = [
        {"layers": [n for n in t.layers if n in part.layers], "first": t.layers.index(n0),
         "count": len(t.layers), "offset": int(t.offset), "layer_stride_bytes": int(t.layer_stride),
         "stride_bytes": int(t.block_stride)}
        for t in tensors
        for n0 in [next(n for n in t.layers if n in part.layers)]
    ]  # fmt: skip
    shapes = getattr(spec, "shapes", None)
    if shapes:
        out["states"] = [
            {"shape": [int(n) for n in shape], "dtype": str(kind).removeprefix("torch.")}
            for shape, kind in zip(shapes, spec.dtypes, strict=False)
        ]
    return out


def _content(spec: Any) -> int | None:
    """Bytes of one head of one stored entry."""
    value = getattr(spec, "state_content_size_bytes", None)
    return None if value is None else int(value)


def _tensors(config: Any, part: Part) -> list[Any]:
    mine = set(part.layers)
    return [
        tensor
        for tensor in getattr(config, "kv_cache_tensors", None) or ()
        if hasattr(tensor, "block_stride") and not mine.isdisjoint(tensor.layers)
    ]
