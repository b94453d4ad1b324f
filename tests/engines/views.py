"""An engine's cache views made again from the layouts in a trace, with torch alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def views(events: Iterable[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A view of each layer over one buffer of bytes, ``(block, head, entry, content)``."""
    events = list(events)
    blocks = {e["pool"]: e["blocks"] for e in events if e["ev"] == "pool"}
    groups = [e for e in events if e["ev"] == "group" and "stretches" in e["layout"]]
    buffer = torch.zeros(groups[0]["layout"]["region_bytes"], dtype=torch.int8)
    made: dict[str, torch.Tensor] = {}
    for group in groups:
        layout = group["layout"]
        parts = group["block_tokens"] // layout.get("kernel_block_tokens", group["block_tokens"])
        axes = layout["axes"]
        for run in layout["stretches"]:
            sizes = {
                "L": run["count"], "B": blocks[group["pool"]] * parts, "H": axes["heads"],
                "N": axes["entries"] // parts, "C": axes["content"],
            }  # fmt: skip
            strides = {"L": run["layer_stride_bytes"], "B": run["stride_bytes"] // parts}
            dense = 1
            for axis in reversed(layout["order"]):
                strides[axis] = strides.get(axis, dense)
                dense = strides[axis] * sizes[axis]
            whole = torch.as_strided(
                buffer, [sizes[a] for a in "LBHNC"], [strides[a] for a in "LBHNC"], run["offset"]
            )
            for place, layer in zip(run["places"], run["layers"], strict=True):
                one = whole[place]
                made[layer] = (
                    one if "states" in layout else one.view(getattr(torch, layout["dtype"]))
                )
    return made


def states(view: torch.Tensor, layout: dict[str, Any]) -> list[torch.Tensor]:
    """The states that a recurrent layer keeps in each of its pages, one behind the other."""
    found, at = [], view.storage_offset()
    for state in layout["states"]:
        kind = getattr(torch, state["dtype"])
        size = torch.empty((), dtype=kind).element_size()
        shape = [view.shape[0], *state["shape"]]
        strides = [view.stride(0) // size]
        dense = 1
        for extent in reversed(state["shape"]):
            strides.insert(1, dense)
            dense *= extent
        flat = torch.empty(0, dtype=torch.int8).set_(view.untyped_storage()).view(kind)
        found.append(torch.as_strided(flat, shape, strides, at // size))
        at += dense * size
    return found


def lies(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor's elements are: without axes of one element, whose strides mean nothing."""
    kept = [
        (n, s * tensor.element_size())
        for n, s in zip(tensor.shape, tensor.stride(), strict=True)
        if n > 1
    ]
    return kept, tensor.storage_offset() * tensor.element_size(), tensor.dtype
