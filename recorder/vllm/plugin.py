"""The entry point that vLLM loads in every process: front end, engine core, workers.

What it leads to is imported where it is asked for: a process that nobody records pays nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.environment import asked

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.beginning import Beginning

_begun: list[Beginning] = []


def register() -> None:
    """Record this process if that is asked for; else do nothing. May be called again."""
    if asked():
        from hkvtool.recorder.adapters import OURS, attach_later, follow_with
        from hkvtool.recorder.vllm.adapter import ADAPTER

        follow_with(ADAPTER)
        attach_later(OURS)


def start(recording: Any) -> None:
    """Hook the engine, and go on from what it has if it has begun."""
    from hkvtool.recorder.vllm.attach import attach
    from hkvtool.recorder.vllm.beginning import Beginning

    if _begun:
        return
    name_of, note = _names(recording), _note()
    turns = recording.turns if getattr(recording, "rolling", False) else None
    _begun.append(
        Beginning(
            lambda: attach(
                recording.emit_dict,
                recording.emitter,
                name_of=name_of,
                note=note,
                turns=turns,
                number_of=getattr(recording, "engine_number", None),
            )
        )
    )
    _begun[0].begin()


def stop(recording: Any) -> bool:
    """Put the engine's own functions back; says whether blocks were told of."""
    told = False
    while _begun:
        told |= _begun.pop().end()
    return told


def geometry() -> list[Any]:
    """What was told of pools, groups and kernels."""
    return [e for begun in _begun for e in begun.geometry()]


def _names(recording: Any) -> Any:
    keyed = getattr(recording, "keyed", None)
    return None if keyed is None else keyed


def _note() -> str:
    """Where this runs, as far as the platform says."""
    told = {"pod": os.environ.get("POD_NAME") or os.environ.get("HOSTNAME"), "pid": os.getpid()}
    return ", ".join(f"{key} {value}" for key, value in told.items() if value)
