"""A recording whose events are judged, by the thread that tells them or by a process beside."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from hkvtool.recorder.emitters import Emitter
from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.guard_beside import Beside, discard, private_recording
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.settings import Settings
from hkvtool.recorder.violation import Violation


class Watched(Recording):
    """A recording with somebody who judges it; does what the recording does, if there is one."""

    def __init__(self, recording: Recording | None = None) -> None:
        self.recorded = recording
        self.folder = recording.folder if recording else ""
        self.off: list[Off] = recording.off if recording else []
        self.keep_tokens = bool(recording and recording.keep_tokens)
        self._keyed = blake2b(key=Settings().key, digest_size=8)

    def keyed(self, value: bytes | str | int) -> str:
        return super().keyed(value) if self.recorded is None else self.recorded.keyed(value)

    def engine_number(self, kind: str, key: str) -> int:
        return 0 if self.recorded is None else self.recorded.engine_number(kind, key)

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
        if self.recorded is not None:
            self.recorded.go_on()

    def emit_aside(self, data: Mapping[str, Any]) -> bool:
        return self.recorded is not None and self.recorded.emit_aside(data)

    def snapshot(self, reason: str) -> str | None:
        return None if self.recorded is None else self.recorded.snapshot(reason)

    def close(self, *, complete: bool = True) -> None:
        if self.recorded is not None:
            self.recorded.close(complete=complete)

    def unwatched(self) -> Recording | None:
        """What is recorded, without the one who judges it."""
        return self.recorded


class Guarded(Watched):
    """Stores each event, then has the guard judge it; without `recording` it only judges.

    In `Mode.RAISE`, what emits an event that breaks a rule raises GuardError.
    """

    def __init__(self, guard: Guard, recording: Recording | None = None) -> None:
        super().__init__(recording)
        self.guard = guard
        guard.on_violation.append(self._save)

    def emit_dict(self, data: Mapping[str, Any]) -> bool:
        __tracebackhide__ = True
        stored = self.recorded.emit_dict(data) if self.recorded is not None else True
        if "round" not in data:
            # Else it is for who begins to read in the middle; the guard has seen all.
            self.guard.see(data)
        return stored

    def emitter(self, ev: str, keys: Sequence[str]) -> Emitter:
        store = None if self.recorded is None else self.recorded.emitter(ev, keys)
        key_of = {f"{key}_": key for key in keys}
        see = self.guard.see

        def emit(*values: Any, **named: Any) -> bool:
            __tracebackhide__ = True
            stored = store is None or store(*values, **named)
            data = {
                key: value for key, value in zip(keys, values, strict=False) if value is not None
            }
            for name, value in named.items():
                if value is not None:
                    data[key_of.get(name, name)] = value
            if "round" not in data:
                data["ev"] = ev
                see(data)
            return stored

        return emit

    def go_on(self) -> None:
        # What happened meanwhile was not told: hook sets begin anew, with what is there.
        self.guard.restart()
        super().go_on()

    def _save(self, violation: Violation) -> None:
        """What led to it is saved before anything overwrites it."""
        self.snapshot(f"guard {violation.code}")


class Followed(Watched):
    """Stores each event; a process beside reads what is stored, and judges it. What nobody asked
    to record is recorded for that process alone."""

    def __init__(self, beside: Beside, recording: Recording, *, alone: bool) -> None:
        super().__init__(recording)
        self._beside, self._alone = beside, alone
        if alone:
            self.folder = ""

    def emit_dict(self, data: Mapping[str, Any]) -> bool:
        assert self.recorded is not None
        return self.recorded.emit_dict(data)

    def emitter(self, ev: str, keys: Sequence[str]) -> Emitter:
        assert self.recorded is not None
        return self.recorded.emitter(ev, keys)

    def snapshot(self, reason: str) -> str | None:
        return None if self._alone else super().snapshot(reason)

    def wait(self) -> None:
        """Until what was told so far is judged, if that is soon."""
        self._beside.wait()

    def close(self, *, complete: bool = True) -> None:
        self.wait()
        super().close(complete=complete)

    def unwatched(self) -> Recording | None:
        if not self._alone:
            return self.recorded
        self.close()
        return None


def guarding(recording: Recording) -> Recording:
    """The same recording, guarded where the environment asks for it."""
    guard = None if isinstance(recording, Watched) else Guard.asked_for(os.environ)
    if guard is None:
        return recording
    if guard.mode is Mode.LOG:
        beside = Beside.start(recording.folder)
        if beside is not None:
            return Followed(beside, recording, alone=False)
    return Guarded(guard, recording)


def only_guarding() -> Recording | None:
    """What stands for a recording where the environment asks for a guard and for nothing else."""
    guard = Guard.asked_for(os.environ)
    if guard is None:
        return None
    if guard.mode is Mode.LOG:
        made = private_recording()
        beside = None if made is None else Beside.start(made.folder, drains=True)
        if made is not None and beside is not None:
            return Followed(beside, made, alone=True)
        if made is not None:
            made.close()
            discard(made.folder)
    return Guarded(guard)
