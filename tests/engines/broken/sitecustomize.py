"""An engine whose cache can be broken while it runs, for a server that a test starts.

On PYTHONPATH it comes before anything is imported, in every process of the server. What is broken
is the word in the file that `BROKEN_FILE` names; an empty file is a server that is right.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

_SGLANG = "BROKEN_SGLANG" in os.environ

for _name in () if _SGLANG else ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]


_version = importlib.metadata.version


def _any_version(name: str) -> str:
    # `vllm serve` asks for itself by a name that its CPU wheel does not have.
    try:
        return _version(name)
    except importlib.metadata.PackageNotFoundError:
        return _version(f"{name}-cpu") + "+cpu"


importlib.metadata.version = _any_version


def fault() -> str:
    """What is broken now."""
    try:
        with open(os.environ["BROKEN_FILE"], encoding="ascii") as file:
            return file.read().strip()
    except (KeyError, OSError):
        return ""


def met(block: int, place: int) -> None:
    """What was to be broken once is; which block, and which place below, is told beside."""
    told = os.environ["BROKEN_FILE"]
    with open(f"{told}.met", "w", encoding="ascii") as file:
        file.write(f"{block} {place}")
    with open(told, "w", encoding="ascii") as file:
        file.write("")


def _spread_weights(module: Any) -> None:
    """Weights of such a size that every token of a prompt tells on the answer."""
    import torch

    cls = module.DummyModelLoader
    spread = float(os.environ["BROKEN_SPREAD"])
    original = cls.load_weights

    def load(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        original(self, model, *args, **kwargs)
        generator = torch.Generator()
        # Layers must not be alike, and every start of the server must be.
        generator.manual_seed(11)
        with torch.no_grad():
            for name, param in model.named_parameters():
                if not torch.is_floating_point(param):
                    continue
                drawn = torch.randn(param.shape, generator=generator, dtype=torch.float32)
                if param.dim() > 1:
                    param.copy_(drawn * (spread / param.shape[-1] ** 0.5))
                else:
                    # A recurrent state that decays at once would say nothing of what is cached.
                    param.copy_(drawn * 0.1 - 3.0 * name.endswith("A_log"))

    cls.load_weights = load


def _wrong_salt(module: Any) -> None:
    original = module.generate_block_hash_extra_keys

    def keys(request: Any, *args: Any) -> Any:
        found, at = original(request, *args)
        if found and fault() == "wrong salt":
            found = tuple(k for k in found if k[0] != "cache_salt") or None
        return found, at

    module.generate_block_hash_extra_keys = keys


def _wrong_blocks(module: Any) -> None:
    cls = module.GPUModelRunner
    original = cls._update_states
    others: dict[int, dict[int, int]] = {}
    """By group: blocks that hold what some request wrote still, and how its prompt begins."""

    def update(self: Any, scheduler_output: Any) -> Any:
        broken = fault()
        groups = self.kv_cache_config.kv_cache_groups
        for fresh in scheduler_output.scheduled_cached_reqs.new_block_ids:
            _forget(others, fresh or ())
        for new in scheduler_output.scheduled_new_reqs:
            begin = new.prompt_token_ids[0]
            counts = [new.num_computed_tokens // g.kv_cache_spec.block_size for g in groups]
            _forget(others, [ids[n:] for ids, n in zip(new.block_ids, counts, strict=True)])
            for i, (group, table) in enumerate(zip(groups, new.block_ids, strict=True)):
                spec, count = group.kv_cache_spec, counts[i]
                theirs = [b for b, first in others.get(i, {}).items() if first != begin]
                if count and theirs:
                    _break(broken, spec, table, count, theirs[-1])
                elif table and table[-1]:
                    # The last: those before have left the window when the prompt is through.
                    others.setdefault(i, {})[table[-1]] = begin
        return original(self, scheduler_output)

    cls._update_states = update


def _forget(others: dict[int, dict[int, int]], tables: Any) -> None:
    """What is given to a request to write in, for whichever group, holds nothing else any more."""
    for table in tables:
        for kept in others.values():
            for block in table:
                kept.pop(block, None)


def _break(broken: str, spec: Any, table: list[int], count: int, theirs: int) -> None:
    """Put another request's block, or none, where a hit's is; for this request only. Two blocks of
    its own in the wrong order would not do: attention sums over them, whatever their order. Nor
    would a block of one that begins alike: it may hold the same."""
    windowed = getattr(spec, "sliding_window", None) is not None
    recurrent = hasattr(spec, "mamba_type")
    if broken == "stale window" and windowed:
        table[count - 1] = theirs
    elif broken == "swapped block" and not windowed and not recurrent:
        table[0] = theirs
    elif broken == "missing state" and recurrent:
        table[count - 1] = 0


_PATCHES: dict[str, Callable[[Any], None]] = {
    "vllm.model_executor.model_loader.dummy_loader": _spread_weights,
    "vllm.v1.core.kv_cache_utils": _wrong_salt,
    "vllm.v1.worker.gpu_model_runner": _wrong_blocks,
}


class _AfterImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        patch = _PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _SGLANG:
    import sglang_faults

    _PATCHES = sglang_faults.PATCHES
    sglang_faults.stand_in_for_kernels()
if "BROKEN_FILE" in os.environ:
    sys.meta_path.insert(0, _AfterImport())
