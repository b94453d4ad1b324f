"""Reading ahead: the next batch is made while the last one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_DEPTH = 2
_PATIENCE = 0.05
"""Seconds between two looks at whether anybody still wants the next item."""

_END = object()


def ahead(items: Generator[T, None, None]) -> Iterator[T]:
    """The items, made by a thread of their own, at most a few before they are asked for.

    It helps where both sides let go of the interpreter's lock, as DuckDB and the compiled fold
    do. What the making raises is raised here; who stops asking stops it.
    """
    made: Queue[Any] = Queue(_DEPTH)
    unwanted = Event()

    def put(item: Any) -> bool:
        while not unwanted.is_set():
            try:
                made.put(item, timeout=_PATIENCE)
                return True
            except Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((_END, None))
        except BaseException as error:  # it is raised where somebody can see it
            put((_END, error))
        finally:
            items.close()

    thread = Thread(target=make, name="hkvtool reading ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        unwanted.set()
        while True:
            try:
                made.get_nowait()
            except Empty:
                break
        thread.join()
