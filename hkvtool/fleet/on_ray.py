"""One question to many instances on a Ray cluster: a task an instance.

Where a task runs, when, and again after a node was lost, is Ray's business. Every node must find
the fleet under the same path, and hkvtool installed.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hkvtool.fleet.instances import Instance
from hkvtool.model.errors import HkvError

T = TypeVar("T")

RETRIES = 5
"""How often a task is given to another process when its own, or its node, is lost."""

_WITHIN = 10.0
"""Seconds in which a cluster's head must take a connection."""


def ask_on_ray(
    question: Callable[[Instance], T], fleet: Sequence[Instance], address: str
) -> Iterator[T]:
    """The answers in the order of the instances. Raises HkvError."""
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
        task: Any = ray.remote(max_retries=RETRIES, scheduling_strategy="SPREAD")(_asked)
        asked = ray.put(question)
        for answer in [task.remote(asked, instance) for instance in fleet]:
            yield ray.get(answer)
    except ray.exceptions.RayError as e:
        first = next(iter(str(e).splitlines()), type(e).__name__)
        raise HkvError(
            f"the cluster at {address} gave an instance up: {first}",
            hint="`ray status` tells how its nodes are; every one needs hkvtool and the folder",
        ) from e
    finally:
        if ours:
            ray.shutdown()


def _asked(question: Callable[[Instance], T], instance: Instance) -> T:
    return question(instance)


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
