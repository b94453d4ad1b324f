"""Hooks on the worker: where it begins a step, what it clears and copies before, how caches lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.vllm.declare import engine_name
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.load_hooks import Called, end_within, tell_within
from hkvtool.recorder.vllm.scheduler_hooks import STEP

DEVICE = "device"
"""The lane of everything that runs in the order of the compute stream."""

BLOCK_TABLE = "block_table"


def caches_made(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The worker has laid out its caches, in more detail than the scheduler is told."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            config = self.kv_cache_config
            sizes = getattr(self, "_kernel_block_sizes", None)
            hooks.remember_config(config, [int(s) for s in sizes] if sizes else None)
            hooks.worker_rank = rank_of(self)
            if not hooks.worker_rank:
                hooks.begin(engine_name())
                hooks.tell.event(
                    {"ev": "buffer", "name": BLOCK_TABLE, "op": "write", "actor": DEVICE}
                )  # fmt: skip
        except Exception as e:
            hooks.fail("caches made", e)
        return result

    return wrapper


def process_is(hooks: Hooks, vllm_config: Any) -> None:
    """Which of several engines this process is of, what it serves, and what it publishes."""
    hooks.serves = vllm_config
    wire = vllm_config.kv_events_config
    if wire is not None and wire.enable_kv_cache_events:
        hooks.sees("wire")
    parallel = vllm_config.parallel_config
    ranks = (getattr(parallel, n, None) for n in ("data_parallel_index", "data_parallel_rank"))
    rank = next((r for r in ranks if isinstance(r, int)), 0)
    # Under Ray each rank's config says which it is; elsewhere all have the one of the front end.
    engine = str(getattr(vllm_config, "instance_id", "") or "").removesuffix(f"_dp{rank}")
    hooks.is_of(engine, rank)


def process_made(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """An engine core, its scheduler or a worker begins, and knows which of several it is. A core
    that is a process of its own loads plug-ins when it has begun already."""

    def wrapper(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        try:
            process_is(hooks, vllm_config)
        except Exception as e:
            hooks.fail("process made", e)
        original(self, vllm_config, *args, **kwargs)

    return wrapper


def configs_sent(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The engine tells its workers how to lay out their caches."""

    def wrapper(self: Any, kv_cache_configs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            hooks.remember_config(kv_cache_configs[0], None)
        except Exception as e:
            hooks.fail("configs sent", e)
        return original(self, kv_cache_configs, *args, **kwargs)

    return wrapper


def step_begun(name: str, *, marks: bool) -> Callable[[Hooks, Any], Callable[..., Any]]:
    """The worker has brought its tables up to date, cleared blocks and copied; what follows on the
    device is the step itself. With `marks` off a later hook says where that begins."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, scheduler_output, *args, **kwargs)
            try:
                step = getattr(scheduler_output, STEP, None)
                hooks.worker_rank = rank_of(self)
                if step is not None:
                    hooks.worker_step = step
                if step is not None and not hooks.worker_rank:
                    _tell_before(hooks, step, scheduler_output)
                    tell_within(hooks, step, scheduler_output, DEVICE)
                    if marks and not (hooks.loads.within and hooks.loads.watched):
                        end_within(hooks)
                        _tell_begin(hooks, step)
            except Exception as e:
                hooks.fail(name, e)
            return result

        return wrapper

    return make


def transfers_begun(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The other runner flushes stores and starts loads behind what was cleared and copied."""

    def wrapper(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        ok = False
        try:
            result = original(self, scheduler_output, *args, **kwargs)
            ok = True
        finally:
            try:
                end_within(hooks, ok=ok)
                step = getattr(scheduler_output, STEP, None)
                if step is not None and ok and not hooks.worker_rank:
                    _tell_begin(hooks, step)
            except Exception as e:
                hooks.fail("transfers begun", e)
        return result

    return wrapper


def loads_begun(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The connector is called before the step runs: what is loaded within it comes then."""
    hooks.loads.watched = True

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return Called(hooks, found, _tell_begin) if hooks.loads.within else found

    return wrapper


def _tell_before(hooks: Hooks, step: int, out: Any) -> None:
    zeroed = getattr(out, "new_block_ids_to_zero", None)
    copies = getattr(out, "kv_cache_block_copies", None)
    pool = f"gpu{hooks.rank}"
    if zeroed:
        hooks.tell.event({"ev": "zero", "pool": pool, "blocks": list(zeroed), "step": step})
    if copies:
        ends = {
            "src": [c.src_block_id for c in copies], "dst": [c.dst_block_id for c in copies],
        }  # fmt: skip
        hooks.tell.event({"ev": "copy", "pool": pool, **ends, "step": step})


def _tell_begin(hooks: Hooks, step: int) -> None:
    hooks.tell.event({"ev": "buffer", "name": BLOCK_TABLE, "op": "read", "step": step})


def rank_of(runner: Any) -> int:
    """Which of several workers that do the same this is: the first tells of it."""
    for name in ("tp_rank", "rank"):
        rank = getattr(runner, name, None)
        if isinstance(rank, int):
            return rank
    config = getattr(getattr(runner, "vllm_config", None), "parallel_config", None)
    return int(getattr(config, "rank", 0) or 0)


def sleeps(reason: str) -> Callable[[Hooks, Any], Callable[..., Any]]:
    """Caches are given up for a while, or made anew: what they held is gone."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            try:
                if not hooks.worker_rank:
                    pool = f"gpu{hooks.rank}"
                    hooks.tell.event({"ev": "rebase", "pool": pool, "reason": reason})
            except Exception as e:
                hooks.fail(reason, e)
            return result

        return wrapper

    return make
