"""One question to many instances on one machine: a pool of processes, each with its share of the
memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from hkvtool.fleet.instances import Instance
from hkvtool.model.errors import HkvError

T = TypeVar("T")

_AHEAD = 4
"""Instances a process that are handed out before the first of them is answered: answers come in
order, and those that wait for an earlier one are held in memory."""

_SHARE = 0.8
"""Of the memory that is free, what the processes may have together."""

LEAST = 1 << 30
"""Bytes that a process has at least: loading what the rules rest on takes half of that."""


def ask_here(
    question: Callable[[Instance], T], fleet: Sequence[Instance], workers: int | None = None
) -> Iterator[T]:
    """The answers in the order of the instances. Raises HkvError where a process is killed."""
    count = min(workers or len(os.sched_getaffinity(0)), len(fleet))
    if count <= 1 and workers is None:
        yield from map(question, fleet)
        return
    pool = ProcessPoolExecutor(
        count,
        # A fork would take along the threads of DuckDB and numba, and their locks.
        multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(max(LEAST, int(_SHARE * _free_memory() / count)),),
    )
    waiting: deque[tuple[Instance, Future[T]]] = deque()
    try:
        for instance in fleet:
            waiting.append((instance, pool.submit(question, instance)))
            if len(waiting) > _AHEAD * count:
                yield _answer(*waiting.popleft())
        while waiting:
            yield _answer(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _answer(instance: Instance, future: Future[T]) -> T:
    try:
        return future.result()
    except BrokenProcessPool as e:
        raise HkvError(
            f"a process was killed before {instance.name} was answered",
            hint="ask with fewer --workers, each then has more memory; or with --ray",
        ) from e


def _begin(most: int) -> None:
    _confine(most)
    threading.Thread(target=_end_with_parent, name="hkvtool parent", daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for questions for ever: its fellows hold the
    other end of what they come through."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _confine(most: int) -> None:
    """What a process takes beyond its share fails there, and not somewhere else on the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _free_memory() -> int:
    """Bytes that the kernel says can be had without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) << 10
    return LEAST
