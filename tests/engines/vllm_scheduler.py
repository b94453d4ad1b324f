"""vLLM's own scheduler and cache manager without a model, under loads that tests make up."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
from vllm.v1.kv_cache_interface import KVCacheGroupSpec, MambaSpec
from vllm.v1.request import RequestStatus

from hkvtool.bench.vllm_loop import (
    BLOCK,
    Drive,
    Made,
    attention,
    gemma_like,
    make_request,
    make_scheduler,
    worker_output,
)

__all__ = [
    "BLOCK", "Drive", "Made", "attention", "gemma_like", "make_request", "make_scheduler",
    "prompts", "qwen_next_like", "random_load", "recurrent", "worker_output",
]  # fmt: skip


def recurrent(layers: Sequence[str], block: int = 64) -> KVCacheGroupSpec:
    """A group of linear-attention layers with states at block ends."""
    spec = MambaSpec(
        block_size=block,
        shapes=((3, 64), (2, 16, 16)),
        dtypes=(torch.float32,) * 2,
        mamba_cache_mode="align",
    )
    return KVCacheGroupSpec(list(layers), spec)


def qwen_next_like() -> list[KVCacheGroupSpec]:
    return [attention(["l0"]), recurrent(["l1"])]


def prompts(rng: random.Random, count: int, longest: int) -> Iterator[list[int]]:
    """Prompts that share beginnings, often cut in the middle of a block."""
    stems = [[rng.randrange(3, 250) for _ in range(longest)] for _ in range(5)]
    for _ in range(count):
        stem = rng.choice(stems)
        cut = rng.randrange(1, longest)
        yield stem[:cut] + [
            rng.randrange(3, 250) for _ in range(rng.randrange(0, longest - cut + 1))
        ]


def random_load(
    drive: Drive, rng: random.Random, steps: int, *, longest: int = 160, output: int = 60
) -> Iterator[int]:
    """Requests come, run, are preempted for room and aborted at random; yields after each step."""
    source = prompts(rng, 1 << 30, longest)
    number = 0
    for i in range(steps):
        live = list(drive.scheduler.requests)
        if len(live) < 10 and rng.random() < 0.35:
            request = make_request(
                drive.scheduler, f"r{number}", next(source), rng.randrange(1, output)
            )
            drive.scheduler.add_request(request)
            number += 1
        if live and rng.random() < 0.03:
            drive.scheduler.finish_requests([rng.choice(live)], RequestStatus.FINISHED_ABORTED)
        if rng.random() < 0.005:
            drive.scheduler.reset_prefix_cache(reset_running_requests=rng.random() < 0.5)
        drive.step()
        yield i
