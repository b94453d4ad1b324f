"""The head of a trace: what the engine has, before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hkvtool.engine.allocator import Emit
from hkvtool.engine.config import Config
from hkvtool.engine.geometry import Group, Preset
from hkvtool.engine.pool import BlockPool
from hkvtool.model.events import FORMAT

EVIDENCE = ("host", "step", "stream", "layout", "graph")


def declare(
    emit: Emit, config: Config, pools: Sequence[BlockPool], note: str, extra: Sequence[str] = ()
) -> None:
    """Emit the trace header, the pools, the groups on each, their readers and the limits.

    `extra` is evidence beyond what the engine always gives.
    """
    preset = config.preset
    evidence = [*EVIDENCE, *extra]
    evidence += ["wire"] * config.wire + ["bytes"] * config.fingerprint
    emit("trace", format=FORMAT, engine=f"hkvtool reference engine, {preset.name}",
         evidence=evidence, note=note)  # fmt: skip
    for pool in pools:
        keys: dict[str, Any] = {"zeroed": True}
        if pool.reserved:
            keys["reserved"] = list(range(pool.reserved))
        emit("pool", pool=pool.name, medium=pool.medium, blocks=pool.blocks, **keys)
    for pool in pools:
        for group in preset.groups:
            emit("group", **_group(preset, group, pool))
    for group in preset.groups:
        emit("kernel", kernel=f"{group.name}.attention", group=group.name, expects=_abi(group))
    if config.cap is not None:
        emit("limits", recovering_blocks=config.cap)


def _group(preset: Preset, group: Group, pool: BlockPool) -> dict[str, Any]:
    suffix = "" if pool.medium == "gpu" else f"@{pool.name}"
    keys: dict[str, Any] = {
        "group": group.name + suffix, "form": group.form.value, "pool": pool.name,
        "block_tokens": group.block_tokens, "layers": group.layers,
    }  # fmt: skip
    if group.ratio > 1:
        keys["ratio"] = group.ratio
    if group.window:
        keys["window"] = group.window
        keys["window_kind"] = "chunked" if group.chunked else "sliding"
    if group.overlap:
        keys["overlap"] = group.overlap
    if group.serves:
        keys["serves"] = group.serves + suffix
    table = next(table for table in preset.tables if group in table.groups)
    if len(table.groups) > 1:
        keys["table"] = f"{group.table}{suffix}"
    if suffix:
        keys["participates"] = False
    keys["layout"] = group.layout(pool.name, preset.stride, preset.align, pool.blocks)
    return keys


def _abi(group: Group) -> dict[str, Any]:
    expects: dict[str, Any] = {"dtype": group.dtype, "order": group.order, "codec": group.codec}
    if group.row_bytes:
        expects["row_bytes"] = group.row_bytes
    return expects
