"""The recording that a process takes part in, and those who must know when it begins and ends.

Hook sets (`hkvtool.recorder.vllm`, …) are loaded in every process of an engine and ask here what
they are to do. All of it is inert unless the environment asks for it:

- ``HKV_RECORD=FOLDER.hkv``: record there. `hkvtool record` sets it; without a launcher the first
  process that comes makes the folder, and the others join it.
- ``HKV_ATTACH=1``: do nothing, but let `hkvtool attach PID` begin later.
- ``HKV_GUARD=log|raise``: judge every event, beside the engine or as it is told, recorded or not
  (`hkvtool.recorder.guard`). Hook sets let GuardError pass: it is to stop the engine.

A hook set does just this, once, in each process::

    from hkvtool.recorder.session import follow

    def start(recording):                     # now, or at a late attach: begin with `state` events
        alloc = recording.emitter("alloc", ("req", "group", "blocks", "tokens"))
        alloc("r1", "kv", [4, 5], None)       # None: left out. True: stored. Never raises or waits
        recording.emit("trace", format="hkv/1", engine="vllm", evidence=["host"])
        ...install the hooks; recording.keyed(x) for hashes, salts, tenants, adapters

    def stop(recording):                      # put the original functions back; False where
        ...                                   # nothing was told that others could miss

    follow(start, stop)

In a flight recorder (`recording.rolling`) the beginning is overwritten: at each step tell the
`state` of the next few blocks too, so that the middle can be read.

Values are plain `int`, `str`, `bool`, `float`, `None`, lists, tuples and dictionaries of those; a
NumPy integer, say, must be made an `int` first. `start` is called again after a `stop`, with
another recording. What `start` or `stop` raise is said on stderr and ends there. A forked child
goes on recording by itself, in rings of its own; a spawned one calls `follow` anew.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import Any

from hkvtool.model.recording import INCOMPLETE, SWITCH, is_recording
from hkvtool.recorder.control import Control
from hkvtool.recorder.environment import ATTACH, JOIN, RECORD
from hkvtool.recorder.folder import set_aside
from hkvtool.recorder.guarded import guarding, only_guarding
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.settings import Settings, SettingsError

_TRIES, _BETWEEN = 20, 0.02
"""How often, and after how many seconds, to look for a folder that is being made."""

Hook = Callable[[Recording], object]


class Session:
    """One a process: what is recorded now, and who follows it."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self._mutex = threading.RLock()
        self._followers: list[tuple[Hook, Hook]] = []
        self._asked = False
        self._control: Control | None = None

    def of_environment(self) -> Recording | None:
        """The recording that the environment asks for; it is looked at once."""
        with self._mutex:
            if not self._asked:
                self._asked = True
                folder = os.environ.get(RECORD)
                if folder:
                    self.begin(folder, join=bool(os.environ.get(JOIN)))
                elif self.recording is None:
                    watched = only_guarding()
                    if watched is not None:
                        self.take(watched)
                if folder or os.environ.get(ATTACH):
                    self._listen()
            return self.recording

    def begin(self, folder: str, *, join: bool = False) -> Recording | Off:
        """Record to a folder, and tell the followers; with `join`, only if somebody began it."""
        with self._mutex:
            if self.recording is not None and self.recording.folder:
                return Off(f"{self.recording.folder} is being recorded already", folder)
            # What was only judged is recorded from here on, and judged as before.
            self.end()
            made = Recording.join(folder) if join else _begin_or_join(folder)
            if isinstance(made, Off):
                say(f"not recording: {made.what}" + (f" ({made.hint})" if made.hint else ""))
                return made
            self.take(made)
            return made

    def take(self, recording: Recording) -> None:
        """Let the followers record to this one."""
        with self._mutex:
            self.recording = recording = guarding(recording)
            atexit.register(self.end)
            for start, _ in self._followers:
                guarded(start, recording)

    def end(self, *, complete: bool = True) -> None:
        """Tell the followers, and close the recording."""
        with self._mutex:
            recording, self.recording = self.recording, None
            if recording is None:
                return
            atexit.unregister(self.end)
            if not recording.paused:
                self._stop(recording)
            recording.close(complete=complete)

    def follow(self, start: Hook, stop: Hook) -> None:
        """See the module."""
        with self._mutex:
            recording = self.of_environment()
            if (start, stop) in self._followers:
                return
            self._followers.append((start, stop))
            if recording is not None:
                guarded(start, recording)

    def look_at_switch(self) -> None:
        """Stop while the recording's folder says `off`; the hooks are taken out meanwhile."""
        recording = self.recording
        if recording is None or not recording.folder:
            return
        if not os.path.exists(os.path.join(recording.folder, INCOMPLETE)):
            # Whoever began it has ended it.
            self._leave()
            self.end(complete=False)
            return
        off = os.path.exists(os.path.join(recording.folder, SWITCH))
        if off == recording.paused:
            return
        with self._mutex:
            if self.recording is not recording:
                return
            if off:
                self._see_no_more(recording)
                recording.pause()
            else:
                recording.go_on()
                for start, _ in self._followers:
                    guarded(start, recording)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What another process of the same user asks for: `record`, `stop` or `status`."""
        op = asked["op"]
        recording = self.recording
        if op == "record":
            made = self.begin(str(asked["folder"]), join=True)
            if isinstance(made, Off):
                return {"ok": False, "what": made.what, "hint": made.hint}
            # Processes that are started from here on take part too.
            os.environ.update({RECORD: made.folder, JOIN: "1"})
        elif op == "stop":
            if recording is None:
                return {"ok": False, "what": "it records nothing"}
            self._leave()
            self._see_no_more(recording)
            self.end(complete=False)
        elif op == "snapshot":
            if recording is None:
                return {"ok": False, "what": "it records nothing"}
            return {"ok": True, "folder": recording.snapshot(str(asked.get("reason", "command")))}
        elif op != "status":
            return {"ok": False, "what": f"there is no request {op!r}"}
        folder = self.recording.folder if self.recording else None
        return {"ok": True, "folder": folder, "followers": len(self._followers)}

    def _stop(self, recording: Recording) -> bool:
        """Tell the followers; says whether any of them had told anything by itself."""
        told = [_stopped(stop, recording) for _, stop in reversed(self._followers)]
        return any(told)

    def _leave(self) -> None:
        """Processes that are started from here on take no part."""
        if os.environ.pop(JOIN, None):
            os.environ.pop(RECORD, None)

    def _see_no_more(self, recording: Recording) -> None:
        """From here on nothing is seen, which is not the same as nothing happening. A process that
        had nothing to tell of does not say so for those that have."""
        if self._stop(recording):
            recording.emit_aside({"ev": "evidence", "evidence": []})

    def _listen(self) -> None:
        """Be there for `attach`, `detach` and the kill switch, in children too."""
        if self._control is None:
            self._control = Control(self)
            os.register_at_fork(after_in_child=self._in_child)
            self._control.start()

    def _in_child(self) -> None:
        """The thread is not there, and may have held what it held when the process forked."""
        self._mutex = threading.RLock()
        if self._control is not None:
            self._control.start()


_session = Session()


def current() -> Session:
    """The session of this process."""
    return _session


def session() -> Recording | None:
    """The recording that this process takes part in, if any."""
    return _session.of_environment()


def follow(start: Hook, stop: Hook) -> None:
    """Have `start` called with the recording, at once or when one begins, and `stop` before it
    ends. Following twice is following once."""
    _session.follow(start, stop)


def guarded(hook: Hook, recording: Recording) -> bool:
    """Call a hook; whatever it raises ends here, and the engine goes on."""
    try:
        hook(recording)
        return True
    except (Exception, SystemExit) as e:
        frames = traceback.extract_tb(e.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        say(f"a hook failed and is off: {type(e).__name__}: {e} ({where})")
        return False


def _stopped(stop: Hook, recording: Recording) -> bool:
    """Call a hook that stops. One that returns False had told of no engine."""
    told = []
    return not guarded(lambda r: told.append(stop(r)), recording) or told != [False]


def say(text: str) -> None:
    """One line on the engine's stderr, whatever an exception of somebody else has to say."""
    from hkvtool.model.text import shown

    with suppress(Exception):
        print(f"hkvtool: {shown(text)}", file=sys.stderr, flush=True)


def _begin_or_join(folder: str) -> Recording | Off:
    """The first process that comes makes the folder, and the others join it. What an earlier start
    of the engine has left there is set aside."""
    off: Recording | Off = Off(f"nobody records to {folder}", folder)
    for _ in range(_TRIES):
        try:
            if not os.path.lexists(folder):
                off = Recording.begin(folder, Settings.of_environment(os.environ))
                if isinstance(off, Recording) or not os.path.lexists(folder):
                    break
            off = Recording.join(folder)
            if isinstance(off, Recording) or not is_recording(folder):
                break
            set_aside(folder)
        except (SettingsError, OSError) as e:
            return Off.of(e, folder)
        # Another process may be about to do the same.
        sleep(_BETWEEN)
    return off
