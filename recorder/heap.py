"""Finding what an engine has made in this process before anybody followed it."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any


def instances(kinds: Iterable[type[Any]]) -> list[Any]:
    """The objects of exactly these classes; a search of the whole heap."""
    wanted = set(kinds)
    if not wanted:
        return []
    # An engine freezes its heap once it has started, and no object of a frozen heap is listed.
    frozen, collects = gc.get_freeze_count() > 0, gc.isenabled()
    gc.disable()
    try:
        if frozen:
            gc.unfreeze()
        return [o for o in gc.get_objects() if type(o) in wanted]
    finally:
        if frozen:
            gc.freeze()
        if collects:
            gc.enable()
