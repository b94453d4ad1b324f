"""The entry point that SGLang loads in every process: front end, scheduler, detokenizer.

What it leads to is imported where it is asked for: a process that nobody records pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hkvtool.recorder.environment import asked

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.hooks import Hooks

_attached: list[Hooks] = []


def register() -> None:
    """Record this process if that is asked for; else do nothing. May be called again."""
    if asked():
        from hkvtool.recorder.adapters import OURS, attach_later, follow_with
        from hkvtool.recorder.sglang.adapter import ADAPTER

        follow_with(ADAPTER)
        attach_later(OURS)


def start(recording: Any) -> None:
    """Follow the caches that this process makes from here on."""
    from hkvtool.recorder.sglang.attach import attach

    if not _attached:
        _attached.append(attach(recording.emit_dict, recording.emitter, recording.keyed))


def stop(recording: Any) -> bool:
    """Put the engine's own functions back; says whether a cache was told of."""
    told = False
    while _attached:
        hooks = _attached.pop()
        told |= bool(hooks.caches)
        hooks.remove()
    return told


def geometry() -> list[Any]:
    """What was told of pools and groups."""
    return [e for hooks in _attached for e in hooks.tell.geometry]
