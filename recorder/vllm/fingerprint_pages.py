"""Where the bytes of an engine's blocks lie in its worker, and the fingerprint of each block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hkvtool.recorder.vllm.specs import parts

_AT_ONCE = 256
"""Pages that are read in one go: what is unpacked of them is eight times their size."""

_MASK = (1 << 63) - 1
_ODD = 0x9E3779B97F4A7C15


class Pages:
    """Where a block's bytes lie in the worker's buffer, layer by layer, by the engine's group."""

    def __init__(self, runner: Any) -> None:
        import torch

        config = runner.kv_cache_config
        first = runner.kv_caches[0]
        while isinstance(first, (list, tuple)):
            first = first[0]
        whole = torch.empty(0, dtype=torch.uint8, device=first.device)
        self.buffer = whole.set_(first.untyped_storage())
        self.units = [g.kv_cache_spec.block_size for g in config.kv_cache_groups]
        places: dict[str, tuple[int, int]] = {}
        for tensor in config.kv_cache_tensors:
            for i, layer in enumerate(tensor.layers):
                base = int(tensor.offset) + i * int(tensor.layer_stride)
                places[layer] = base, int(tensor.block_stride)
        self._groups = [
            [
                (*places[layer], int(getattr(part.spec, "real_page_size_bytes", 0))
                 or int(part.spec.page_size_bytes))
                for part in parts(group)
                for layer in part.layers
                if layer in places
            ]
            for group in config.kv_cache_groups
        ]  # fmt: skip

    def values(self, group: int, blocks: Sequence[int]) -> list[int]:
        """The fingerprint of each block: of all its layers, without what pads them."""
        sums = [0] * len(blocks)
        sizes = {size for _, _, size in self._groups[group]}
        for size in sizes:
            layers = [(i, p) for i, p in enumerate(self._groups[group]) if p[2] == size]
            starts = [base + block * stride for _, (base, stride, _) in layers for block in blocks]
            found = self._read(starts, size)
            for k, value in enumerate(found):
                layer, at = layers[k // len(blocks)][0], k % len(blocks)
                sums[at] = (sums[at] + value * (2 * layer + 1) * _ODD) & _MASK
        return sums

    def _read(self, starts: Sequence[int], size: int) -> Iterable[int]:
        import torch

        from hkvtool.kernels.rows import Rows

        kernel = _kernel(self.buffer)
        for at in range(0, len(starts), _AT_ONCE):
            some = torch.tensor(starts[at : at + _AT_ONCE], dtype=torch.int64)[:, None]
            yield from kernel(self.buffer, Rows(some, (size,))).tolist()


def _kernel(buffer: Any) -> Callable[..., Any]:
    from importlib.util import find_spec

    if buffer.is_cuda and find_spec("triton") is not None:
        from hkvtool.kernels.triton_kernels import fingerprint
    else:
        from hkvtool.kernels.reference import fingerprint
    return fingerprint
