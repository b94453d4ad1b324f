"""Findings in a user's terms."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.state.faults import Fault
from hkvtool.state.reading import Read
from hkvtool.state.scene import Scene


def shown(blocks: Sequence[int]) -> str:
    """A few block ids as text."""
    head = ", ".join(map(str, blocks[:6]))
    return head if len(blocks) <= 6 else f"{head}, … ({len(blocks)} in all)"


def of_blocks(blocks: Sequence[int]) -> str:
    """One block, or a few, as text."""
    return f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {shown(blocks)}"


def sentence(scene: Scene, read: Read, faults: Sequence[Fault]) -> str:
    """What is wrong with a read."""
    group = read.group.name
    does = _does(read)
    fault = faults[0]
    blocks = [scene.fold.block_of[f.slot] for f in faults if f.slot >= 0]
    if not blocks:
        return f"{does}, but in group {group} {fault.why}"
    name = of_blocks(blocks)
    also = "" if len(blocks) == 1 else f" (block {blocks[0]})"
    return f"{does}, but {name} of group {group} cannot serve it: {fault.why}{also}"


def _does(read: Read) -> str:
    # A request that only looks up has nothing yet that the fold would know it by.
    name = read.request.name if read.request else read.event.req
    who = "a kernel" if name is None else f"request {name}"
    if read.event.ev == "resume":
        return f"{who} resumes at token {read.event['at']}"
    if read.event.ev == "lookup":
        return f"the lookup of {who} hits"
    does = f"{who} reads group {read.group.name}"
    if read.event.step is not None:
        does += f" in step {read.event.step}"
    if read.at is not None:
        does += f", resumed at token {read.at}"
    return does
