"""What a correct engine may be like; each thing can be switched on its own."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

FAMILIES = (
    "full", "full_swa", "full_chunked", "full_recurrent", "full_swa_recurrent", "mla", "mla_split",
    "draft", "c4", "c4_ring", "swa_only", "full_cyclic", "full_sink", "full_replayed",
)  # fmt: skip
"""Sets of cache groups, see `families.py`."""

SIMPLE = ("full", "full_swa", "full_chunked", "swa_only", "full_sink")
"""Families whose every table is one plain attention group."""


@dataclass(frozen=True)
class Options:
    """A correct engine. The defaults are a plain one: synchronous, one device lane, no tier."""

    family: str = "full"
    shared_pool: bool = True
    tight: bool = False
    """Few blocks: evictions, refusals and preemptions happen."""
    requests: int = 8
    lane: str | None = None
    """Actor of a step's accesses; None leaves it to the default lane."""
    streams: bool = False
    """Lanes and signal/wait edges are recorded."""
    async_steps: bool = False
    """Step n+1 is scheduled, and blocks change hands, before step n is retired."""
    late_device: bool = False
    """The lines of a step's accesses come late: after what the host did meanwhile."""
    early_publish: bool = False
    """Prompt blocks are published when their step is scheduled."""
    same_step: bool = False
    """A request may hit what another one computes in the same step."""
    drafts: int = 0
    """Speculative tokens a decode step; the rejected ones are rolled back and rewritten."""
    cow: bool = False
    """Hits may end inside a block, which is then copied."""
    promote: bool = False
    """Open blocks are published while they grow."""
    abort: bool = False
    preempt: bool = False
    tier: str | None = None
    """`cpu` or `remote`: published blocks are stored there and loaded back."""
    pins: bool = False
    """Loads pin their sources instead of taking references."""
    load_failures: bool = False
    layerwise: bool = False
    lease: bool = False
    limits: bool = False
    remap: bool = False
    weights: bool = False
    wire: bool = False
    keys: bool = False
    layout: bool = False
    graphs: bool = False
    buffers: bool = False
    fingerprints: bool = False
    gens: bool = False
    """Uses state the generations that they mean."""
    deferred: bool = False
    """Blocks of a request that ends are given back when its last step is retired."""
    rotate: bool = False
    """The recording is cut in the middle and says again what holds."""
    attach: str | None = None
    """`state` or `unknown`: the recording begins in the middle."""
    dropped: bool = False
    """The recorder lost some events and says so."""

    def valid(self) -> bool:
        """Whether the parts go together."""
        return not (
            (self.drafts and (self.async_steps or "recurrent" in self.family))
            or (self.late_device and not self.async_steps)
            or (self.same_step and (not self.early_publish or "recurrent" in self.family))
            or ((self.cow or self.promote) and self.family != "full")
            or (self.cow and (self.tier or self.rotate or self.attach == "state"))
            or ((self.pins or self.load_failures or self.layerwise or self.lease or self.limits)
                and not self.tier)
            or (self.lease and (self.tier != "remote" or not self.streams))
            or (self.layerwise and (not self.streams or self.family not in ("full", "mla", "draft")))
            or (self.fingerprints and self.early_publish)
            or (self.wire and self.early_publish)
            or (self.attach == "state" and self.family not in SIMPLE)
            or (self.attach and (self.wire or self.dropped or self.graphs or self.weights))
            or (self.dropped and self.wire)
            or ((self.attach or self.dropped) and (self.gens or self.rotate))
            or (self.rotate and self.family not in SIMPLE)
            or (self.tier and self.family in ("full_cyclic", "full_replayed"))
            or (self.remap and (self.tier or self.attach))
            or (self.limits and self.layout)
        )  # fmt: skip


SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "separate_pools": {"shared_pool": False},
    "tight": {"tight": True},
    "worker_lane": {"lane": "worker:0"},
    "streams": {"streams": True, "lane": "stream:compute"},
    "async": {"async_steps": True},
    "async_tight": {"async_steps": True, "tight": True, "abort": True},
    "late_device": {"async_steps": True, "late_device": True},
    "late_tight": {"async_steps": True, "late_device": True, "tight": True, "preempt": True},
    "early_publish": {"early_publish": True},
    "early_async": {"early_publish": True, "async_steps": True},
    "same_step": {"early_publish": True, "same_step": True},
    "drafts": {"drafts": 3},
    "cow": {"cow": True},
    "promote": {"promote": True},
    "cow_async": {"cow": True, "promote": True, "async_steps": True},
    "abort": {"abort": True},
    "preempt": {"preempt": True},
    "tier": {"tier": "cpu"},
    "tier_streams": {"tier": "cpu", "streams": True},
    "tier_async": {"tier": "cpu", "streams": True, "async_steps": True, "tight": True},
    "tier_abort": {"tier": "cpu", "abort": True, "tight": True},
    "pins": {"tier": "cpu", "pins": True},
    "load_failures": {"tier": "remote", "load_failures": True, "tight": True},
    "layerwise": {"tier": "cpu", "streams": True, "layerwise": True, "tight": True},
    "lease": {"tier": "remote", "streams": True, "lease": True, "tight": True},
    "limits": {"tier": "cpu", "limits": True, "tight": True},
    "remap": {"remap": True},
    "weights": {"weights": True},
    "wire": {"wire": True},
    "wire_tight": {"wire": True, "tight": True},
    "keys": {"keys": True},
    "layout": {"layout": True},
    "graphs": {"graphs": True},
    "buffers": {"buffers": True, "async_steps": True, "streams": True, "lane": "stream:compute"},
    "fingerprints": {"fingerprints": True},
    "gens": {"gens": True, "tight": True},
    "gens_late": {"gens": True, "tight": True, "async_steps": True, "late_device": True},
    "deferred": {"deferred": True, "async_steps": True, "abort": True, "tight": True},
    "rotate": {"rotate": True, "tight": True},
    "rotate_tier": {"rotate": True, "tier": "cpu"},
    "attach_state": {"attach": "state"},
    "attach_state_tight": {"attach": "state", "tight": True},
    "attach_unknown": {"attach": "unknown"},
    "attach_unknown_tier": {"attach": "unknown", "tier": "cpu"},
    "dropped": {"dropped": True},
    "dropped_tier": {"dropped": True, "tier": "cpu", "streams": True},
}
"""Each thing alone, or with the least it needs."""


def random_options(rng: Random) -> Options:
    """Several things at once, as engines have them."""
    while True:
        chosen = Options(family=rng.choice(FAMILIES))
        for field in fields(Options):
            if field.type == "bool" and rng.random() < 0.3:
                changes: dict[str, Any] = {field.name: not field.default}
                chosen = replace(chosen, **changes)
        chosen = replace(
            chosen,
            lane=rng.choice((None, "worker:0", "stream:compute")),
            drafts=rng.choice((0, 0, 0, 2, 3)),
            tier=rng.choice((None, None, "cpu", "remote")),
            attach=rng.choice((None, None, None, None, "state", "unknown")),
            dropped=chosen.dropped and rng.random() < 0.3,
        )
        if chosen.valid():
            return chosen
