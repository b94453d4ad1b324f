"""How an engine run is set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hkvtool.engine.geometry import Preset
from hkvtool.engine.workload import Request
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form


@dataclass(frozen=True)
class Config:
    """Everything but the workload. Times are of a simulated clock in nanoseconds.

    A step takes `step_ns` and `token_ns` a token, and computes up to `budget` tokens; in decode
    it stands for `stride` iterations of one token each. Up to two steps are in flight where
    `asynchronous`: the next is scheduled before the last has retired. `abort_rate` of the
    requests are cancelled by their clients. `cap` bounds the device blocks that recover at once,
    counted once a group. `wire` adds the KV events that the engine would publish, `fingerprint`
    checksums of what is stored and loaded. `all_layers` keeps stamps for each layer, not for one
    of each group: as many times the memory, and more of a step's kernels.
    """

    preset: Preset
    blocks: int
    cpu_blocks: int = 0
    disk_blocks: int = 0
    asynchronous: bool = True
    trust_hash: bool = False
    cap: int | None = None
    seed: int = 0
    abort_rate: float = 0.01
    budget: int = 8192
    stride: int = 32
    running: int = 64
    step_ns: int = 5_000_000
    token_ns: int = 20_000
    device: str = "cpu"
    wire: bool = False
    fingerprint: bool = False
    all_layers: bool = False

    def fitted(self, longest: int) -> Config:
        """The config with steps no larger than its pool allows for a request of `longest` tokens.

        HkvError where even the smallest step of that request would not fit.
        """
        grain = self.preset.grain
        budget = max(self.budget, grain)
        while (need := self._blocks_for(longest, budget)) > self.blocks - 1:
            if budget <= grain:
                raise HkvError(
                    f"a request of {longest:,} tokens needs {need:,} blocks of {self.blocks - 1:,}",
                    hint=f"give the pool more: --blocks {need + 1}, or --blocks unlimited",
                )
            budget = max(grain, budget // 2)
        return replace(self, budget=budget)

    def _blocks_for(self, tokens: int, budget: int) -> int:
        chunk = sum(
            -(-budget // table.lead.block_tokens) + 1
            for table in self.preset.tables if not table.history
        )  # fmt: skip
        return self.preset.blocks_for(tokens) + chunk


def unlimited(preset: Preset, requests: Sequence[Request], budget: int) -> int:
    """Blocks that no run of these requests can exhaust.

    A history takes each distinct prefix block once at least and at most once a request; windows,
    tails and states leave what their checkpoints publish.
    """
    distinct = {node: request.unit for request in requests for node in request.nodes}
    prefix = sum(distinct.values())
    own = sum(request.output + 2 * request.unit for request in requests)
    cuts = sum(request.total // budget + 3 for request in requests)
    count = 1
    for table in preset.tables:
        lead = table.lead
        if table.history or (lead.form is Form.SWA and not lead.sparse):
            count += (prefix + own) // lead.block_tokens + 2 * len(requests)
        else:
            held = 1 if lead.form is Form.RECURRENT else lead.window or lead.unit + lead.overlap
            count += cuts * (held // lead.block_tokens + 2)
    longest = max((request.total for request in requests), default=0)
    return count + 64 * preset.blocks_for(longest)
