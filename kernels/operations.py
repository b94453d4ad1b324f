"""The operations, each where its buffer is: Triton's on a GPU, the references elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch

from hkvtool.kernels import reference
from hkvtool.kernels.reference import heads, tiled
from hkvtool.kernels.rows import Rows

__all__ = ["gather", "heads", "poison", "scatter", "stamp", "tiled", "verify", "zero"]


@cache
def _device() -> ModuleType:
    if find_spec("triton") is None:
        return reference
    from hkvtool.kernels import triton_kernels

    return triton_kernels


def _of(buffer: torch.Tensor) -> ModuleType:
    return _device() if buffer.is_cuda else reference


def gather(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """See `reference.gather`."""
    found: torch.Tensor = _of(buffer).gather(buffer, rows)
    return found


def scatter(buffer: torch.Tensor, rows: Rows, packed: torch.Tensor) -> None:
    """See `reference.scatter`."""
    _of(buffer).scatter(buffer, rows, packed)


def stamp(buffer: torch.Tensor, rows: Rows, stamps: torch.Tensor) -> None:
    """See `reference.stamp`."""
    _of(buffer).stamp(buffer, rows, stamps)


def verify(
    buffer: torch.Tensor, rows: Rows, expected: torch.Tensor, fields: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `reference.verify`."""
    found: tuple[torch.Tensor, torch.Tensor] = _of(buffer).verify(buffer, rows, expected, fields)
    return found


def poison(buffer: torch.Tensor, rows: Rows, *, lifted: bool = False) -> None:
    """See `reference.poison`."""
    _of(buffer).poison(buffer, rows, lifted=lifted)


def zero(buffer: torch.Tensor, rows: Rows) -> None:
    """See `reference.zero`."""
    _of(buffer).zero(buffer, rows)
