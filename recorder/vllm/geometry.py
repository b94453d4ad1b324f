"""Where the bytes of a group lie: all that is needed to make its views again with torch alone."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.vllm import specs
from hkvtool.recorder.vllm.specs import Part

STORAGE = "kv"
"""All groups lie over one another in one buffer of the worker."""


def layout(config: Any, part: Part, kernel_block: int | None = None) -> dict[str, Any]:
    """`layout` keys of one part of a group; fewer where the engine has not laid it out yet.

    Beyond the keys of the format: `axes`, the extent of a block (heads, entries, bytes of one
    head of an entry); `stretches`, where each run of layers lies; `states`, how a recurrent page
    is divided. A view is then ``as_strided`` over ``(layer, block, head, entry, byte)``, strides
    of layer and block as stated, the others dense in the order of `order`.
    """
    spec = part.spec
    out: dict[str, Any] = {"dtype": specs.dtype(spec), "codec": specs.codec(spec)}
    content, entries = _number(spec, "state_content_size_bytes"), _entries(spec)
    heads = _number(spec, "num_heads") or 1
    if content is not None and entries:
        out["page_bytes"] = content * heads * entries
        if getattr(spec, "shapes", None) is None:
            out["row_bytes"] = content * heads
        out["axes"] = {"heads": heads, "entries": entries, "content": content}
    if kernel_block is not None:
        out["kernel_block_tokens"] = kernel_block
    shapes = getattr(spec, "shapes", None)
    if shapes:
        out["states"] = [
            {"shape": [int(n) for n in shape], "dtype": str(kind).removeprefix("torch.")}
            for shape, kind in zip(shapes, spec.dtypes, strict=False)
        ]
    stretches = _stretches(config, part)
    if stretches:
        first = stretches[0]
        order = getattr(config, "kv_cache_layout", None)
        out.update(
            storage=STORAGE,
            region_bytes=int(_tensors(config, part)[0].size),
            stride_bytes=first["stride_bytes"],
            layer_stride_bytes=first["layer_stride_bytes"],
            offset=first["offset"],
            order=str(getattr(order, "name", order) or "LBHNC"),
            stretches=stretches,
        )
    return out


def _stretches(config: Any, part: Part) -> list[dict[str, Any]]:
    """Runs of the part's layers: layer i of a run begins i layer strides behind its offset."""
    mine = set(part.layers)
    found: list[dict[str, Any]] = []
    for tensor in _tensors(config, part):
        places = [i for i, name in enumerate(tensor.layers) if name in mine]
        found.append(
            {
                "layers": [tensor.layers[i] for i in places],
                "places": places,
                "count": len(tensor.layers),
                "offset": int(tensor.offset),
                "layer_stride_bytes": int(tensor.layer_stride),
                "stride_bytes": int(tensor.block_stride),
            }
        )
    return found


def _entries(spec: Any) -> int:
    """Stored entries in a block of the manager."""
    count = getattr(spec, "get_num_kernel_states", None)
    if count is not None:
        return int(count(spec.block_size))
    ratio = getattr(spec, "tokens_per_state", 1)
    return int(spec.block_size // ratio) if ratio and ratio > 0 else 1


def _number(spec: Any, name: str) -> int | None:
    value = getattr(spec, name, None)
    return None if value is None else int(value)


def _tensors(config: Any, part: Part) -> list[Any]:
    mine = set(part.layers)
    return [
        tensor
        for tensor in getattr(config, "kv_cache_tensors", None) or ()
        # Before 0.28 a tensor names who shares it, not where each layer lies.
        if hasattr(tensor, "layers") and not mine.isdisjoint(tensor.layers)
    ]
