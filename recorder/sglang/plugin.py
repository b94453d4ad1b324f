"""The entry point that SGLang loads in every process: front end, scheduler, detokenizer.

What it leads to is imported where it is asked for: a process that nobody records pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hkvtool.recorder.environment import asked

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.beginning import Beginning

_begun: list[Beginning] = []


def register() -> None:
    """Record this process if that is asked for; else do nothing. May be called again."""
    if asked():
        from hkvtool.recorder.adapters import OURS, attach_later, follow_with
        from hkvtool.recorder.sglang.adapter import ADAPTER

        follow_with(ADAPTER)
        attach_later(OURS)


def start(recording: Any) -> None:
    """Hook the engine, and go on from what it has if it has begun."""
    from hkvtool.recorder.sglang.attach import attach
    from hkvtool.recorder.sglang.beginning import Beginning

    if _begun:
        return
    number_of = getattr(recording, "engine_number", None)
    _begun.append(
        Beginning(
            lambda: attach(recording.emit_dict, recording.emitter, recording.keyed, number_of)
        )
    )
    _begun[0].begin()


def stop(recording: Any) -> bool:
    """Put the engine's own functions back; says whether a cache was told of."""
    told = False
    while _begun:
        told |= _begun.pop().end()
    return told


def geometry() -> list[Any]:
    """What was told of pools and groups."""
    return [e for begun in _begun for e in begun.geometry()]
