"""Layouts: what a producer writes, what a consumer expects, and where the two disagree.

Source: trace-format `hkv/1`, `layout` keys; vLLM's `KVCacheSpec` and the registration calls of
transfer engines are where such numbers come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

RULE_OF_KEY = {
    "dtype": "HKV201",
    "row_bytes": "HKV201",
    "scale_bytes": "HKV201",
    "order": "HKV202",
    "tp_shard": "HKV202",
    "codec": "HKV203",
    "ratio": "HKV203",
    "block_tokens": "HKV204",
    "kernel_block_tokens": "HKV204",
    "hash": "HKV205",
    "page_bytes": "HKV403",
    "stride_bytes": "HKV403",
    "layer_stride_bytes": "HKV403",
    "offset": "HKV403",
}
"""The rule that a disagreement about each layout key breaks."""

DTYPE_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e4m3fn": "float8_e4m3",
    "float8_e4m3fn": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
}
"""Names of one dtype; torch and the engines spell it differently."""

_PER_KERNEL_BLOCK = ("page_bytes", "stride_bytes")


class Disagreement(NamedTuple):
    """One layout key that two sides state differently."""

    code: str
    key: str
    producer: Any
    consumer: Any


def _same(key: str, one: Any, other: Any) -> bool:
    if key == "dtype":
        names = [str(v).removeprefix("torch.") for v in (one, other)]
        return len({DTYPE_ALIASES.get(n, n) for n in names}) == 1
    return bool(one == other)


def disagreements(
    layout: Mapping[str, Any], block_tokens: int, ratio: int, expects: Mapping[str, Any]
) -> list[Disagreement]:
    """Every key that producer and consumer state differently.

    A consumer that works in kernel blocks states page and stride for one of those: what the
    producer states for its own block is divided before they are compared.
    """
    produced = {"ratio": ratio, "block_tokens": block_tokens, **layout}
    found: list[Disagreement] = []
    kernel_block = expects.get("kernel_block_tokens")
    parts = 1
    if isinstance(kernel_block, int):
        if kernel_block <= 0 or block_tokens % kernel_block:
            found.append(Disagreement("HKV204", "kernel_block_tokens", block_tokens, kernel_block))
        else:
            parts = block_tokens // kernel_block
    found += _crossing(layout, block_tokens, ratio, expects, parts)
    for key, wanted in expects.items():
        code = RULE_OF_KEY.get(key)
        if code is None or key == "kernel_block_tokens" or key not in produced:
            continue
        own = produced[key]
        if key in _PER_KERNEL_BLOCK and parts > 1 and isinstance(own, int):
            own = own // parts if own % parts == 0 else own / parts
        if not _same(key, own, wanted):
            found.append(Disagreement(code, key, own, wanted))
    return found


def _crossing(
    layout: Mapping[str, Any], block_tokens: int, ratio: int, expects: Mapping[str, Any], parts: int
) -> list[Disagreement]:
    """404: the kernel's blocks, or its entries, do not fit the producer's page."""
    page, wanted, row = (
        layout.get("page_bytes"), expects.get("page_bytes"), expects.get("row_bytes")
    )  # fmt: skip
    if not isinstance(page, int):
        return []
    if parts > 1 and isinstance(wanted, int) and wanted * parts > page:
        return [Disagreement("HKV404", "page_bytes", page, wanted * parts)]
    if isinstance(row, int) and "row_bytes" not in layout:
        entries = block_tokens // max(1, ratio)
        if row * entries > page:
            return [Disagreement("HKV404", "page_bytes", page, row * entries)]
    return []


def misalignment(layout: Mapping[str, Any], blocks: int, align: Any = None) -> list[str]:
    """Which of base, offset and strides are no multiple of the required alignment, in words."""
    unit = layout.get("align") if align is None else align
    if not isinstance(unit, int) or unit <= 1:
        return []
    keys = ["base", "offset"]
    if blocks > 1:
        keys.append("stride_bytes")
    if "layer_stride_bytes" in layout:
        keys.append("layer_stride_bytes")
    return [
        f"{key} {layout[key]} is no multiple of {unit}"
        for key in keys
        if isinstance(layout.get(key), int) and layout[key] % unit
    ]


def overrun(layout: Mapping[str, Any], block: int, layers: Any = 1) -> int:
    """Bytes by which the payload of `block` ends beyond the registered region; 0 where it fits
    or the layout does not say."""
    region, page = layout.get("region_bytes"), layout.get("page_bytes")
    if not isinstance(region, int) or not isinstance(page, int):
        return 0
    stride = layout.get("stride_bytes", page)
    start = layout.get("offset", 0) + block * stride
    between = layout.get("layer_stride_bytes")
    if isinstance(between, int) and isinstance(layers, int) and layers > 1:
        start += (layers - 1) * between
    return max(0, int(start + page - region))


def entry_overflow(layout: Mapping[str, Any], block_tokens: int, ratio: int) -> int:
    """Bytes by which a block's entries exceed its page; 0 where they fit."""
    row, page = layout.get("row_bytes"), layout.get("page_bytes")
    if not isinstance(row, int) or not isinstance(page, int):
        return 0
    return max(0, row * (block_tokens // max(1, ratio)) - page)
