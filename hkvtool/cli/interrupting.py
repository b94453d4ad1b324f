"""Ctrl-C as a request to end with what there is, and what goes on from there."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed meanwhile; pressed once more it interrupts as everywhere."""
    asked = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def cached(kind: str, name: str) -> Path:
    """Where the state of a search stands that was given no file of its own."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "hkvtool" / kind / f"{name}.json"


def spelled(words: Sequence[object]) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(str(word) for word in words)
