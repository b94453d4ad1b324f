"""Recording transformers' continuous batching from inside, in process, nothing changed.

There is no plugin interface: `register` has the hooks of `choke_points` put on when a recording or
a guard begins in this process, and taken off when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hkvtool.recorder.recording import Recording
    from hkvtool.recorder.transformers.hooks import Hooks

_attached: list[Hooks] = []


def register() -> None:
    """Follow what is recorded in this process, from now on."""
    from hkvtool.recorder.session import follow

    follow(_start, _stop)


def _start(recording: Recording) -> None:
    from hkvtool.recorder.transformers.attach import attach

    _attached.append(attach(recording.emit_dict, recording.emitter, recording.keyed))


def _stop(recording: Recording) -> None:
    while _attached:
        _attached.pop().remove()
