"""A device's streams and copies on a CPU, for SGLang's own host tier: a copy is under way until the
test says that it has landed, and its bytes move only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_landing: list[Callable[[], None]] = []
"""What is submitted and has not happened, in order."""

_recorded: list[Event] = []
"""Events that are recorded behind it."""


class Event:
    """Is over when everything submitted before it was recorded has landed."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        if enable_timing:
            raise NotImplementedError
        self._behind: list[Callable[[], None]] = []

    def record(self, stream: Any = None) -> None:
        self._behind = list(_landing)

    def query(self) -> bool:
        return not any(one in _landing for one in self._behind)

    def synchronize(self) -> None:
        while not self.query():
            land(1)

    def wait(self, stream: Any = None) -> None:
        pass


class Stream:
    """In order with all others: what is tested is what is told of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.behind: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.behind.append(other)

    def wait_event(self, event: Event) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        land()


_CURRENT = Stream()


class Device:
    """Stands in for `torch.cuda`."""

    __name__ = "a CPU's device"
    Event, Stream = Event, Stream

    @staticmethod
    def current_stream() -> Stream:
        return _CURRENT

    @staticmethod
    @contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        yield


def land(count: int | None = None) -> None:
    """The first copies that are under way have landed; all, unless it is said how many."""
    for _ in range(len(_landing) if count is None else min(count, len(_landing))):
        _landing[0]()
        del _landing[0]


def under_way() -> int:
    return len(_landing)


def copy(
    src_layers: list[Any], dst_layers: list[Any], src_indices: Any, dst_indices: Any,
    page_size: int,
) -> None:  # fmt: skip
    """The one transfer function that is used here: of whole pages, layer by layer."""
    src, dst = src_indices.clone(), dst_indices.clone()

    def happen() -> None:
        for near, far in zip(src_layers, dst_layers, strict=True):
            far[dst] = near[src]

    _landing.append(happen)


def plain_memory(dims: Any, dtype: Any, device: str, *args: Any, **kwargs: Any) -> Any:
    """Memory of the host that no device has to know of."""
    return torch.zeros(dims, dtype=dtype, device=device)


def stand_in() -> None:
    """SGLang's host tier moves bytes by this device from here on."""
    from sglang.srt.managers import cache_controller
    from sglang.srt.mem_cache import l2_transfer
    from sglang.srt.mem_cache.pool_host import mha

    for module in (cache_controller, l2_transfer):
        module.device_module = Device
    mha.transfer_kv_direct = copy
    mha.ALLOC_MEMORY_FUNCS["cpu"] = plain_memory
    _landing.clear()
