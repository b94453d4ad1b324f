"""A recording whose events are judged as they are told; also without a recording."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from hkvtool.recorder.emitters import Emitter
from hkvtool.recorder.guard import Guard
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.settings import Settings
from hkvtool.recorder.violation import Violation


class Guarded(Recording):
    """Stores each event, then has the guard judge it; without `recording` it only judges.

    In `Mode.RAISE`, what emits an event that breaks a rule raises GuardError.
    """

    def __init__(self, guard: Guard, recording: Recording | None = None) -> None:
        self.guard = guard
        self.recorded = recording
        self.folder = recording.folder if recording else ""
        self.off: list[Off] = recording.off if recording else []
        self.keep_tokens = bool(recording and recording.keep_tokens)
        self._keyed = blake2b(key=Settings().key, digest_size=8)
        guard.on_violation.append(self._save)

    def emit_dict(self, data: Mapping[str, Any]) -> bool:
        __tracebackhide__ = True
        stored = self.recorded.emit_dict(data) if self.recorded is not None else True
        if "round" not in data:
            # Else it is for who begins to read in the middle; the guard has seen all.
            self.guard.see(data)
        return stored

    def emitter(self, ev: str, keys: Sequence[str]) -> Emitter:
        names = [f"{key}_" if key in ("from", "in", "is", "as", "or") else key for key in keys]

        def emit(*values: Any, **named: Any) -> bool:
            found = dict(zip(keys, values, strict=False))
            found.update((keys[names.index(name)], value) for name, value in named.items())
            given = {key: value for key, value in found.items() if value is not None}
            return self.emit_dict({"ev": ev, **given})

        return emit

    def keyed(self, value: bytes | str | int) -> str:
        return super().keyed(value) if self.recorded is None else self.recorded.keyed(value)

    @property
    def rolling(self) -> bool:
        return self.recorded is not None and self.recorded.rolling

    def turns(self) -> float:
        return 0.0 if self.recorded is None else self.recorded.turns()

    @property
    def paused(self) -> bool:
        return self.recorded is not None and self.recorded.paused

    def pause(self) -> None:
        if self.recorded is not None:
            self.recorded.pause()

    def go_on(self) -> None:
        # What happened meanwhile was not told: hook sets begin anew, with what is there.
        self.guard.restart()
        if self.recorded is not None:
            self.recorded.go_on()

    def emit_aside(self, data: Mapping[str, Any]) -> bool:
        return self.recorded is not None and self.recorded.emit_aside(data)

    def snapshot(self, reason: str) -> str | None:
        return None if self.recorded is None else self.recorded.snapshot(reason)

    def close(self, *, complete: bool = True) -> None:
        if self.recorded is not None:
            self.recorded.close(complete=complete)

    def _save(self, violation: Violation) -> None:
        """What led to it is saved before anything overwrites it."""
        self.snapshot(f"guard {violation.code}")


def guarding(recording: Recording) -> Recording:
    """The same recording, guarded where the environment asks for it."""
    guard = None if isinstance(recording, Guarded) else Guard.asked_for(os.environ)
    return recording if guard is None else Guarded(guard, recording)


def only_guarding() -> Recording | None:
    """What stands for a recording where the environment asks for a guard and for nothing else."""
    guard = Guard.asked_for(os.environ)
    return None if guard is None else Guarded(guard)
