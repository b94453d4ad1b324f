"""An SGLang whose cache can be broken while it runs, on a CPU for which it has no kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sitecustomize import fault

PAGE = 16
_SPREAD = 1.5


def _spread_weights(module: Any) -> None:
    """Weights of such a size that every token of a prompt tells on the answer."""

    def draw(model: Any, *args: Any, **kwargs: Any) -> None:
        import torch

        generator = torch.Generator()
        generator.manual_seed(11)
        with torch.no_grad():
            for param in model.parameters():
                drawn = torch.randn(param.shape, generator=generator, dtype=torch.float32)
                if param.dim() > 1:
                    param.copy_(drawn * (_SPREAD / param.shape[-1] ** 0.5))
                else:
                    param.copy_(1 + drawn * 0.1)

    module.initialize_dummy_weights = draw


def _wrong_salt(module: Any) -> None:
    original = module.Req.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if fault() == "wrong salt":
            self.cache_salt = None

    module.Req.__init__ = init


def _wrong_pages(module: Any) -> None:
    """A page of another request where a hit's first is."""
    original = module.write_cache_indices
    names = list(inspect.signature(original).parameters)
    others: list[Any] = []
    """Pages that hold what somebody wrote still."""

    def write(out_cache_loc: Any, *args: Any, **kwargs: Any) -> Any:
        told = dict(zip(names[1:], args, strict=False)) | kwargs
        found = told["prefix_tensors"]
        fresh = set(out_cache_loc.tolist())
        others[:] = [page for page in others if not fresh & set(page.tolist())][-20:]
        at = 0
        for i, count in enumerate(told["extend_lens_cpu"].tolist()):
            prefix, whole = found[i], count // PAGE * PAGE
            mine = set(prefix.tolist())
            theirs = [page for page in others if not mine & set(page.tolist())]
            if len(prefix) >= PAGE and theirs and fault() == "swapped block":
                prefix = prefix.clone()
                prefix[:PAGE] = theirs[-1]
                found[i] = prefix
            elif not len(prefix) and whole:
                others.append(out_cache_loc[at + whole - PAGE : at + whole].clone())
            at += count
        return original(out_cache_loc, *args, **kwargs)

    module.write_cache_indices = write


PATCHES: dict[str, Callable[[Any], None]] = {
    "sglang.srt.model_loader.loader": _spread_weights,
    "sglang.srt.managers.schedule_batch": _wrong_salt,
    "sglang.srt.mem_cache.allocation": _wrong_pages,
}


def stand_in_for_kernels() -> None:
    """Kernels have no build for a CPU; what runs here in their place is SGLang's own torch code."""
    from engines_sglang.absent import stand_in

    stand_in()
