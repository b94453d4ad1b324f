"""transformers' continuous batching on tiny random models, one step of it at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

logging.getLogger("transformers").setLevel(logging.ERROR)

WINDOW, PAGE = 16, 8

PATIENCE = 300.0
"""Seconds that what will come may take, however busy the machine is."""


def model(kind: str, window: int = WINDOW) -> Any:
    """A tiny model with random weights: `qwen3` is full attention, the others are hybrids."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    common: dict[str, Any] = {
        "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    if kind == "qwen3":
        made = transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(num_hidden_layers=2, **common)
        )
    elif kind == "gemma3":
        made = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
            num_hidden_layers=4, sliding_window=window, query_pre_attn_scalar=16,
            layer_types=["sliding_attention"] * 3 + ["full_attention"], **common,
        ))  # fmt: skip
    else:
        made = transformers.GptOssForCausalLM(transformers.GptOssConfig(
            num_hidden_layers=4, sliding_window=window, num_local_experts=4, num_experts_per_tok=2,
            layer_types=["sliding_attention", "full_attention"] * 2, **common,
        ))  # fmt: skip
    made = made.to(torch.float32).eval()
    with torch.no_grad():
        # Random weights predict next to nothing; larger ones tell one token from the other.
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    made.set_attn_implementation("eager" if kind == "gptoss" else "sdpa")
    return made


def prompts(count: int, shared: int = 40, own: int = 7, seed: int = 0) -> list[list[int]]:
    """Prompts that begin alike."""
    rng = Random(seed)
    head = [rng.randrange(3, 128) for _ in range(shared)]
    return [head + [rng.randrange(3, 128) for _ in range(own + i)] for i in range(count)]


def settings(**changes: Any) -> ContinuousBatchingConfig:
    """A small cache, without what needs a GPU."""
    chosen: dict[str, Any] = {
        "page_size": PAGE, "num_blocks": 64, "max_batch_tokens": 64, "max_memory_percent": 0.5,
        "use_async_batching": False, "use_cuda_graph": False, "auto_switch_to_flash": False,
        "cpu_offload_space": 0.0, "safety_margin": 0.0, "seed": 0,
    }  # fmt: skip
    return ContinuousBatchingConfig(**{**chosen, **changes})


@contextmanager
def manager(
    made: Any, config: ContinuousBatchingConfig, *, new_tokens: int = 12, sequences: int = 1
) -> Iterator[Any]:
    """A manager that generates in a thread of its own, as users have it."""
    generation = GenerationConfig(
        do_sample=sequences > 1, max_new_tokens=new_tokens, eos_token_id=-1, pad_token_id=0,
        num_return_sequences=sequences,
    )  # fmt: skip
    with made.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=config, warmup=False
    ) as running:
        yield running


def ask(running: Any, asked: Sequence[Sequence[int]], **options: Any) -> list[str]:
    """Send prompts that come all at once: whatever the thread that generates was doing, none of
    them is computed before all are there."""
    with running.pause():
        names: list[str] = running.add_requests([list(p) for p in asked], **options)
    return names


def results(running: Any, count: int) -> dict[str, Any]:
    """That many finished requests."""
    found: dict[str, Any] = {}
    end = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < end:
        result = running.get_result(timeout=0.05)
        if result is not None and result.is_finished():
            found[result.request_id] = result
        elif result is None and not running.is_running():
            raise AssertionError(running.background_thread_status.fatal_error)
    assert len(found) == count, f"{len(found)} of {count} requests finished"
    return found


def until(running: Any, come: Callable[[], bool]) -> None:
    """Wait until something has happened in the thread that generates."""
    end = time.monotonic() + PATIENCE
    while not come():
        assert running.is_running(), running.background_thread_status.fatal_error
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


def generate(
    made: Any, asked: Sequence[Sequence[int]], *, waves: int = 1, new_tokens: int = 12,
    sequences: int = 1, tamper: Callable[[Any], None] | None = None, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """Run prompts in waves; `tamper` is given the cache before the first."""
    done: dict[str, Any] = {}
    with manager(made, settings(**changes), new_tokens=new_tokens, sequences=sequences) as running:
        if tamper is not None:
            with running.pause():
                tamper(running.batch_processor.cache)
        for wave in range(waves):
            part = asked[wave::waves]
            ask(running, part, max_new_tokens=new_tokens)
            done |= results(running, len(part) * sequences)
    return done


@contextmanager
def pinless() -> Iterator[None]:
    """Pinned memory needs a GPU; ordinary memory does as well here."""
    empty = torch.empty

    def unpinned(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return empty(*args, **kwargs)

    torch.empty = unpinned  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.empty = empty  # type: ignore[assignment]


def plainly(made: Any, prompt: Sequence[int], new_tokens: int) -> list[int]:
    """What the model generates without any of it."""
    implementation = made.config._attn_implementation
    if implementation.startswith("paged"):
        made.set_attn_implementation(implementation.removeprefix("paged|"))
    out = made.generate(
        torch.tensor([list(prompt)]), max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1,
        pad_token_id=0, attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
    )  # fmt: skip
    made.set_attn_implementation(implementation)
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens
