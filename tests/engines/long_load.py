"""A long recording of vLLM's own scheduler, cache manager and offloading connector, without a model.

Runs in the engine's environment; `python -m engines.long_load FOLDER GEOMETRY EVENTS SEED` records
to FOLDER and prints how many steps and requests that took.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import engines.conftest  # noqa: F401  the environment of an engine
from engines.vllm_engine import core_of, make_engine
from engines.vllm_offload import FIRST_RUNNER, Offloading
from engines.vllm_scheduler import attention, gemma_like, prompts, qwen_next_like
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.vllm.attach import attach
from hkvtool.recorder.vllm.hooks import Hooks

_MIB = 1 << 20

KINDS: dict[str, dict[str, Any]] = {
    "gemma": {"groups": gemma_like, "blocks": 60},
    "gpt-oss": {
        "groups": lambda: [attention(["l1", "l3"]), attention(["l0", "l2"], window=128)],
        "blocks": 90,
    },
    "qwen3-next": {"groups": qwen_next_like, "blocks": 40, "block": 64, "mamba": "align"},
    "deepseek-v4": {"blocks": 400, "block": 256, "length": 2048, "budget": 128, "seqs": 4},
}  # fmt: skip
LONGEST = {"deepseek-v4": 300, "qwen3-next": 400}


def _of_a_whole_engine(folder: Path) -> tuple[list[Any], Any]:
    """DeepSeek-V4's cache groups as a whole engine works them out, and its worker's config, which
    says more of them; the engine is gone again."""
    seen = attach(lambda event: None)
    core = core_of(make_engine(folder, "deepseek4"))
    config = core.scheduler.kv_cache_config
    core.shutdown()
    seen.remove()
    return list(config.kv_cache_groups), seen.worker_config(config)


def load(drive: Any, rng: random.Random, more: Any, longest: int) -> tuple[int, int]:
    """Requests whose prompts share beginnings come for as long as `more` says, and run to their
    ends; returns the steps and the requests."""
    source = prompts(rng, 1 << 30, longest)
    steps = number = 0
    while more() or drive.busy:
        if more() and len(drive.scheduler.requests) < 10 and rng.random() < 0.35:
            drive.add(f"r{number}", next(source), rng.randrange(1, 60))
            number += 1
        drive.step()
        steps += 1
    return steps, number


def of_a_kind(folder: Path, hooks: Hooks, kind: str) -> Offloading:
    """A scheduler of one of the geometries, with the connector."""
    options = dict(KINDS[kind])
    groups = options.pop("groups", None)
    if groups is None:
        made, config = _of_a_whole_engine(folder)
        hooks.remember_config(config, None)
    else:
        made = groups()
    return Offloading(
        folder, hooks, FIRST_RUNNER, made, overlapped=True, prompt_only=False,
        host_bytes=4 * _MIB, **options,
    )  # fmt: skip


def record(folder: str, kind: str, events: int, seed: int) -> None:
    """Record so many events, and what it then takes to come to an end."""
    made = Recording.start(folder, ring_bytes=64 * _MIB, max_bytes=256 * _MIB)
    assert isinstance(made, Recording)
    hooks: Hooks = attach(made.emit_dict, made.emitter, name_of=made.keyed)
    drive = of_a_kind(Path(folder).parent, hooks, kind)
    ring = made._rings[0]
    steps, requests = load(
        drive, random.Random(seed), lambda: ring.next_seq < events, LONGEST.get(kind, 200)
    )
    hooks.remove()
    made.close()
    assert not hooks.failed, hooks.failed
    print(f"{steps} steps of {requests} requests")


if __name__ == "__main__":
    folder, kind, events, seed = sys.argv[1:]
    record(folder, kind, int(events), int(seed))
