"""Device time of calls, and the ceilings to hold it against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MIB = 1 << 20
HOLD = 400_000
"""Rounds of a spin that outlast the launching of a call."""


def seconds(run: Callable[[], Any], times: int = 9, hold: int = HOLD) -> float:
    """The median device time of a call.

    The stream is held up while the call is launched, so that only work on the device is timed:
    a call that prepares much on the host needs to be held up longer.
    """
    from hkvtool.kernels import triton_kernels

    run()
    run()
    taken = []
    for _ in range(times):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        triton_kernels.spin(hold, "cuda")
        start.record()
        run()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return sorted(taken)[times // 2]


def ceilings(one: torch.Tensor, two: torch.Tensor, pinned: torch.Tensor) -> dict[str, float]:
    """Bytes a second that this device comes to with the plainest work: a copy (bytes read and
    written), a fill, a reduction, and copies from and to pinned host memory."""
    size, part = one.numel(), one[: pinned.numel()]
    words = one.view(torch.int64)
    # They differ by how well they are written: the best one is the ceiling.
    reads = (lambda: words.sum(), lambda: one.view(torch.float32).sum(), lambda: words.amax())
    fills = (two.zero_, lambda: two.fill_(7), lambda: two.view(torch.int64).fill_(7))
    return {
        "copy": 2 * size / seconds(lambda: two.copy_(one)),
        "fill": size / min(seconds(fill) for fill in fills),
        "read": size / min(seconds(read) for read in reads),
        "from host": len(pinned) / seconds(lambda: part.copy_(pinned, non_blocking=True)),
        "to host": len(pinned) / seconds(lambda: pinned.copy_(part, non_blocking=True)),
    }
