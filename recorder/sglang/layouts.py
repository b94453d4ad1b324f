"""How the bytes of a pool lie: read off the tensors that the engine has made of them.

Keys and values of a layer are tensors of their own, as are the layers. Told is where the keys of
the first layer lie (or the rows that hold both); `stretches` says where all others do.
"""

from __future__ import annotations

from typing import Any

Stretch = dict[str, Any]


def of_device(pool: Any, page: int) -> dict[str, Any]:
    """`layout` keys of a device's pool; none where its tensors are of another kind."""
    keys, values = getattr(pool, "k_buffer", None), getattr(pool, "v_buffer", None)
    if keys is not None and values is not None:
        if getattr(pool, "kv_cache_layout", "nhd") != "nhd":
            return {}
        parts = {"k": list(keys), "v": list(values)}
    else:
        rows = getattr(pool, "kv_buffer", None)
        if not isinstance(rows, (list, tuple)):
            return {}
        parts = {"kv": list(rows)}
    layout = _of(parts, page, str(pool.dtype), "layer,token,head,dim")
    if layout and getattr(pool, "dsa_kv_cache_store_fp8", False):
        layout["codec"] = "fp8_ds_mla/1"
    return layout


def of_host(pool: Any, page: int) -> dict[str, Any]:
    """The same of the host's copy, which is cut out of one buffer."""
    if getattr(pool, "layout", None) != "layer_first":
        return {}
    keys, values = getattr(pool, "k_data_refs", None), getattr(pool, "v_data_refs", None)
    parts = {"k": list(keys), "v": list(values)} if keys and values else {}
    return _of(parts, page, str(pool.dtype), "layer,token,head,dim")


def of_blocks(tensors: list[Any], rows: int, **keys: Any) -> dict[str, Any]:
    """The same of tensors whose rows are pages or parts of such, one tensor a layer: a block is so
    many of their rows."""
    if not tensors or not all(t.ndim == 2 and t[0].is_contiguous() for t in tensors):
        return {}
    first = tensors[0]
    row, step = _row_bytes(first), first.stride(0) * first.element_size()
    return {
        "order": "layer,page,byte", "page_bytes": row + step * (rows - 1),
        "stride_bytes": step * rows, "base": first.data_ptr(), "offset": 0,
        "region_bytes": step * (first.shape[0] - 1) + row, **keys,
        "stretches": [_stretch("kv", i, t) for i, t in enumerate(tensors)],
    }  # fmt: skip


def of_states(pool: Any) -> dict[str, Any]:
    """The same of recurrent states: of each layer a slot holds some tensors, one behind the other
    only within each."""
    cache = pool.mamba_cache
    parts = {f"conv{i}": tensor for i, tensor in enumerate(cache.conv)}
    parts["temporal"] = cache.temporal
    filled = {name: list(t) for name, t in parts.items() if t.numel()}
    if not filled or not all(t[0].is_contiguous() for part in filled.values() for t in part):
        return {}
    first = next(iter(filled.values()))[0]
    row, step = _row_bytes(first), first.stride(0) * first.element_size()
    return {
        "dtype": str(first.dtype).removeprefix("torch."), "codec": "identity/1",
        "order": "layer,slot,state", "page_bytes": row, "stride_bytes": step,
        "base": first.data_ptr(), "offset": 0,
        "region_bytes": step * (first.shape[0] - 1) + row,
        "states": [{"shape": list(t[0].shape[1:]), "dtype": str(t[0].dtype).removeprefix("torch.")}
                   for t in filled.values()],
        "stretches": [_stretch(name, i, t) for name, part in filled.items()
                      for i, t in enumerate(part)],
    }  # fmt: skip


def _of(parts: dict[str, list[Any]], page: int, dtype: str, order: str) -> dict[str, Any]:
    tensors = [t for part in parts.values() for t in part]
    if not tensors or not all(_in_rows(t) for t in tensors):
        return {}
    first = tensors[0]
    row, step = _row_bytes(first), first.stride(0) * first.element_size()
    return {
        "dtype": dtype.removeprefix("torch."), "codec": "identity/1", "order": order,
        "row_bytes": row, "page_bytes": row + step * (page - 1), "stride_bytes": step * page,
        "base": first.data_ptr(), "offset": 0,
        "region_bytes": step * (first.shape[0] - 1) + row,
        "stretches": [_stretch(name, i, t) for name, part in parts.items()
                      for i, t in enumerate(part)],
    }  # fmt: skip


def _in_rows(tensor: Any) -> bool:
    """Whether a token's entry is one run of bytes: all but the first axis lie close."""
    return bool(tensor.ndim == 3 and tensor[0].is_contiguous())


def _row_bytes(tensor: Any) -> int:
    return int(tensor[0].numel() * tensor.element_size())


def _stretch(name: str, place: int, tensor: Any) -> Stretch:
    step = tensor.stride(0) * tensor.element_size()
    return {
        "part": name, "place": place, "base": tensor.data_ptr(), "row_bytes": _row_bytes(tensor),
        "row_stride_bytes": step, "region_bytes": step * (tensor.shape[0] - 1) + _row_bytes(tensor),
    }  # fmt: skip
