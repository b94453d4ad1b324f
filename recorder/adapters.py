"""Which adapters there are, and having them attach to the engines that this process imports.

Ours, and whatever is installed under the entry points ``hkvtool.adapters``. What another wrote is
met with care: one that cannot be loaded, lacks something or raises is said once, on the engine's
stderr, and the engine goes on without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module, metadata
from typing import Any

from hkvtool.recorder.adapter import GROUP, Adapter, lacking
from hkvtool.recorder.environment import ADAPTERS
from hkvtool.recorder.on_import import when_imported
from hkvtool.recorder.session import follow, say

OURS = {
    "vllm": "hkvtool.recorder.vllm.adapter:ADAPTER",
    "sglang": "hkvtool.recorder.sglang.adapter:ADAPTER",
    "transformers": "hkvtool.recorder.transformers.attach:ADAPTER",
}

PLUGGED = ("vllm", "sglang")
"""Engines that load ours by themselves; the import of all others is watched for."""

_loaded: dict[str, Adapter | None] = {}
_said: set[str] = set()
_followers: list[Follower] = []
"""One of each adapter: the session knows them by identity."""


@dataclass(frozen=True, eq=False)
class Follower:
    """Between the session and an adapter, of which the session need not know what it may do."""

    adapter: Adapter

    def start(self, recording: Any) -> None:
        """Attach; one that fails half way is taken off again."""
        try:
            self.adapter.attach(recording)
        except BaseException:
            with suppress(Exception, SystemExit):
                self.adapter.detach(recording)
            raise

    def stop(self, recording: Any) -> bool:
        """Detach; says whether anything was told."""
        return bool(self.adapter.detach(recording))


def follow_with(adapter: Adapter) -> None:
    """Have an adapter attach to what this process records, now and later. Twice is once."""
    follower = next((f for f in _followers if f.adapter is adapter), None)
    if follower is None:
        follower = Follower(adapter)
        _followers.append(follower)
    follow(follower.start, follower.stop)


def names() -> dict[str, str]:
    """Every adapter that may be used here, ``module:attribute`` by name. ``HKV_ADAPTERS`` says
    which: names, and ``module:attribute`` of one that is not installed under a name."""
    there = dict(OURS)
    for point in _installed():
        if point.name not in OURS:
            there[point.name] = point.value
        elif point.value != OURS[point.name]:
            _say_once(f"the adapter {point.name} of {point.value} is not used: hkvtool has its own")
    wanted = os.environ.get(ADAPTERS)
    if wanted is None:
        return there
    chosen: dict[str, str] = {}
    for name in filter(None, map(str.strip, wanted.split(","))):
        if name in there:
            chosen[name] = there[name]
        elif ":" in name:
            chosen[name] = name
        else:
            _say_once(f"{ADAPTERS}: there is no adapter {name!r}; there are {', '.join(there)}")
    return chosen


def load(name: str, value: str) -> Adapter | None:
    """An adapter, or None where it cannot be had, which is said."""
    if value not in _loaded:
        _loaded[value] = _load(name, value)
    return _loaded[value]


def adapters() -> dict[str, Adapter]:
    """Those that can be had, by name."""
    found = ((name, load(name, value)) for name, value in names().items())
    return {name: adapter for name, adapter in found if adapter is not None}


def attach_later(besides: Iterable[str] = PLUGGED) -> None:
    """Attach to engines as soon as they are imported, now where they are; but not to those that
    load us by themselves."""
    for name, adapter in adapters().items():
        if name not in besides:
            when_imported(adapter.engine, partial(follow_with, adapter))


def attach_imported(besides: Iterable[str] = ()) -> list[str]:
    """Attach to every engine that this process has imported, but for the adapters named; which
    they were."""
    found = []
    for name, adapter in adapters().items():
        if adapter.engine in sys.modules and name not in besides:
            found.append(name)
            follow_with(adapter)
    return found


@cache
def _installed() -> list[metadata.EntryPoint]:
    """Looked for once: a guard over tests asks before each of them."""
    try:
        return list(metadata.entry_points(group=GROUP))
    except Exception as e:
        _say_once(f"installed adapters cannot be listed: {type(e).__name__}: {e}")
        return []


def _load(name: str, value: str) -> Adapter | None:
    module, _, attribute = value.partition(":")
    try:
        found: Any = import_module(module)
        for part in filter(None, attribute.split(".")):
            found = getattr(found, part)
        lacks = lacking(found)
        if not lacks and not isinstance(found.engine, str):
            lacks = ["engine"]
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        # Somebody else's module may do anything, exit included.
        _say_once(f"the adapter {name} cannot be loaded: {type(e).__name__}: {e}")
        return None
    if lacks:
        _say_once(f"the adapter {name} is none: {value} has no {', '.join(lacks)}")
        return None
    adapter: Adapter = found
    return adapter


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        say(text)
