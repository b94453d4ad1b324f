"""Questions to many things on a Ray cluster: a task each, the answers in order.

Where a task runs, when, and again after a node was lost, is Ray's business. Every node must have
hkvtool installed, and find what the tasks read under the same path.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from hkvtool.fleet.instances import Instance
from hkvtool.model.errors import HkvError

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741

RETRIES = 5
"""How often a task is given to another process when its own, or its node, is lost."""

_WITHIN = 10.0
"""Seconds in which a cluster's head must take a connection."""

_AHEAD = 8
"""Tasks a core that are handed out before the first of them is answered: answers come in order,
and those that wait for an earlier one are held on the cluster."""


class Cluster:
    """A cluster that is connected to."""

    def __init__(self, ray: Any, address: str) -> None:
        self._ray = ray
        self._address = address

    @property
    def gpus(self) -> int:
        """How many the cluster has."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def ask(
        self, question: Callable[[I], T], about: Iterable[I], *, gpus: float = 0
    ) -> Generator[T, None, None]:
        """The answers in order, each by a task that has so many GPUs. Raises HkvError. What was
        handed out is given up when the generator is closed."""
        ray = self._ray
        waiting: deque[Any] = deque()
        try:
            options = {"num_gpus": gpus} if gpus else {}
            task: Any = ray.remote(
                max_retries=RETRIES, scheduling_strategy="SPREAD", **options
            )(_asked)  # fmt: skip
            asked = ray.put(question)
            cores = int(ray.cluster_resources().get("CPU", 1))
            for one in about:
                waiting.append(task.remote(asked, one))
                if len(waiting) > _AHEAD * cores:
                    yield ray.get(waiting.popleft())
            while waiting:
                yield ray.get(waiting.popleft())
        except ray.exceptions.RayError as e:
            first = next(iter(str(e).splitlines()), type(e).__name__)
            raise HkvError(
                f"the cluster at {self._address} gave a task up: {first}",
                hint="`ray status` tells how its nodes are; every one needs hkvtool and the data",
            ) from e
        finally:
            # Of a cluster that is gone there is nothing to give up.
            with suppress(Exception):
                for left in waiting:
                    ray.cancel(left)


@contextmanager
def cluster(address: str) -> Iterator[Cluster]:
    """A connection to the cluster at an address; one that is there already is used and left as it
    is. Raises HkvError."""
    try:
        import ray
    except ImportError as e:
        raise HkvError(
            "--ray needs ray, which is not installed", hint="pip install 'hkvtool[ray]'"
        ) from e
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    try:
        yield Cluster(ray, address)
    finally:
        if ours:
            ray.shutdown()


def ask_on_ray(
    question: Callable[[Instance], T], fleet: Sequence[Instance], address: str
) -> Iterator[T]:
    """The answers of instances in their order. Raises HkvError."""
    with cluster(address) as there:
        yield from there.ask(question, fleet)


def _asked(question: Callable[[I], T], one: I) -> T:
    return question(one)


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if port.isdecimal():
            # Ray tries an address where nothing listens for many minutes.
            socket.create_connection((host.strip("[]"), int(port)), _WITHIN).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as e:
        first = next(iter(str(e).splitlines()), type(e).__name__)
        raise HkvError(
            f"there is no Ray cluster at {address}: {first}",
            hint="`ray start --head` starts one; `auto` is the one of this machine",
        ) from e
