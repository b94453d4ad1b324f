"""What the worker is to read of a step, as the scheduler knows it: only it knows what is published.

The plan goes with the scheduler's output to whichever process the worker is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.vllm.load_hooks import LOADS

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.pool_state import PoolState

PLAN = "hkvtool_prints"
"""Attribute by which a plan travels to the worker."""

Wanted = Callable[[bytes, str], bool]
"""Whether content of this hash is to be read, for this request."""


@dataclass
class Read:
    """Blocks of one group that a request goes on from, or that it completes."""

    number: int
    group: str
    req: str
    blocks: list[int]


@dataclass
class Plan:
    """What to read before a step and behind it, and requests that somebody looks for. What is
    loaded within the step is there only behind it."""

    before: list[Read] = field(default_factory=list)
    loaded: list[Read] = field(default_factory=list)
    behind: list[Read] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.before or self.loaded or self.behind or self.wanted)


def plan(scheduler: Any, out: Any, state: PoolState, wants: Wanted) -> Plan:
    """The plan of a step that was just handed out."""
    made = Plan()
    starts = {new.req_id: new.num_computed_tokens for new in out.scheduled_new_reqs}
    resumed = [req for req, start in starts.items() if start]
    cached = out.scheduled_cached_reqs
    anew = getattr(cached, "resumed_req_ids", ())
    for req, start in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        starts[req] = start
        if req in anew and start:
            resumed.append(req)
    # Most steps complete no block: what does not even pass the smallest unit is not looked at.
    unit = min(state.units.values(), default=0) or 1
    passing = [
        (req, starts[req], starts[req] + count)
        for req, count in out.num_scheduled_tokens.items()
        if starts[req] // unit != (starts[req] + count) // unit
    ]
    if not passing and not resumed:
        return made
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    loads = {(load["req"], load["group"]): set(load["blocks"]) for load in getattr(out, LOADS, ())}
    for number, manager in enumerate(managers):
        unit = state.units.get(number, 0)
        if not unit:
            continue
        for req in resumed:
            blocks = manager.req_to_blocks.get(req, ())[: starts[req] // unit]
            come: set[int] = loads.get((req, state.group(number)), set())
            there = [block for block in blocks if block.block_id not in come]
            _add(made.before, state, number, req, there, wants)
            if come:
                coming = [block for block in blocks if block.block_id in come]
                _add(made.loaded, state, number, req, coming, wants)
        for req, start, end in passing:
            first, last = start // unit, end // unit
            if first < last:
                blocks = manager.req_to_blocks.get(req, ())[first:last]
                _add(made.behind, state, number, req, blocks, wants)
    return made


def _add(
    reads: list[Read], state: PoolState, number: int, req: str, blocks: Iterable[Any], wants: Wanted
) -> None:
    chosen = []
    for block in blocks:
        name = None if block.is_null else block.block_hash
        if name is not None and wants(_bytes(name), req):
            chosen.append(block.block_id)
    if chosen:
        reads.append(Read(number, state.group(number), req, chosen))


def _bytes(name: Any) -> bytes:
    return bytes(name) if isinstance(name, (bytes, bytearray)) else repr(name).encode()
