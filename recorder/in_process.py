"""Recording from within a program: ``with hkvtool.record("t.duckdb"): ...``."""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.recording import read_recording, remove_recording, weight_of
from hkvtool.recorder.adapters import attach_imported, attach_later
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.session import current, say
from hkvtool.recorder.settings import Settings, fresh_key, policy_of, read_key

_SUFFIX, _SEALED = ".duckdb", ".hkv"

_NOTHING = (
    "no engine that this process has imported did anything meanwhile; "
    "`python -m hkvtool.recorder.diagnosis` says which would be recorded"
)


class record:
    """Record what the engines that this process has imported do, from here to the end of the
    `with` block, or from the call to `close()`.

    `output` is a trace, ``NAME.duckdb``, which is made at the end where DuckDB is installed beside
    the engine (else the recording is kept), or a recording, ``NAME.hkv``. With `policy` "grow"
    nothing is ever dropped, and the program waits now and then for a file to be made; "drop" and
    "overwrite" never wait. Raises HkvError where it cannot begin.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        policy: str = "grow",
        keep_tokens: bool = False,
        hash_key: str | os.PathLike[str] | None = None,
        force: bool = False,
    ) -> None:
        path = os.fspath(output)
        stem, suffix = os.path.splitext(path)
        if suffix not in (_SUFFIX, _SEALED):
            raise HkvError(f"{path}: no trace is called so", hint="name it .duckdb or .hkv")
        if suffix == _SUFFIX and os.path.lexists(path) and not force:
            raise HkvError(f"{path} exists already", hint="force=True replaces it")
        self.output, self._force = os.path.abspath(path), force
        key = fresh_key() if hash_key is None else read_key(os.fspath(hash_key))
        settings = Settings(policy_of(policy), keep_tokens=keep_tokens, key=key)
        session = current()
        if session.recording is not None and session.recording.folder:
            raise HkvError(f"this process records to {session.recording.folder} already")
        session.end()
        made = Recording.begin(stem + _SEALED, settings, force=force)
        if isinstance(made, Off):
            raise made.error()
        session.take(made)
        # The session may have put a guard around it.
        self.recording = session.recording or made
        attach_imported()
        attach_later()

    def close(self, *, complete: bool = True) -> None:
        """End the recording, and make the trace."""
        if current().recording is not self.recording:
            return
        current().end(complete=complete)
        folder = self.recording.folder
        if self.recording.off:
            say(f"not all was recorded: {self.recording.off[0].what}")
        empty = _is_empty(folder)
        if empty:
            say(f"nothing was recorded: {_NOTHING}")
        if not self.output.endswith(_SUFFIX):
            return
        if empty:
            remove_recording(folder)
            return
        # In a process of its own: DuckDB does not belong into an engine's.
        args = [sys.executable, "-m", "hkvtool", "ingest", folder, "-o", self.output]
        if subprocess.run(args + ["--force"] * self._force, cwd=folder).returncode:
            say(f"{folder} is kept; `hkvtool ingest {folder}` makes the trace, elsewhere too")
        else:
            remove_recording(folder)

    def __enter__(self) -> Recording:
        return self.recording

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(complete=error is None)


def _is_empty(folder: str) -> bool:
    """Whether there is no event in a recording that has ended."""
    try:
        return not weight_of(folder) and next(read_recording(folder), None) is None
    except TraceError:
        # Whatever it holds, somebody should see it.
        return False
