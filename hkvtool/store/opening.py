"""Opening a trace, whatever file it is in."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import IO

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.recording import is_recording
from hkvtool.store.destination import in_utf8
from hkvtool.store.trace import Trace

STDIN = "-"

HEAD_BYTES = 4096
"""What tells of what kind a file is."""


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a DuckDB trace, JSON lines (gzipped or not), standard input as `-`, the folder of a
    recording as it stands, or the trace of a bundle.

    The content decides what a file is, not its name. Raises TraceError.
    """
    name = os.fspath(path)
    from hkvtool.store.lines import JsonlTrace, StreamTrace

    if name == STDIN:
        stream = stdin()
        return StreamTrace(name, stream, head_of_stream(name, stream))
    if is_recording(name):
        from hkvtool.store.ingesting import open_recording

        return open_recording(name)
    head = head_of(name)
    if head is None:
        with open(name, "rb") as stream:
            return StreamTrace(name, stream, head_of_stream(name, stream))
    if is_duckdb(head):
        from hkvtool.store.duck import DuckTrace

        return DuckTrace(name)
    if is_bundle(head):
        from hkvtool.store.bundle import BundleTrace

        return BundleTrace(name)
    refuse_what_is_no_text(name, head)
    return JsonlTrace(name)


def head_of(path: str) -> bytes | None:
    """The first bytes of a file; None for a pipe, which gives them once. Raises TraceError."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISFIFO(mode):
            return None
        if not stat.S_ISREG(mode):
            raise _no_file(path, mode)
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
        if (is_duckdb(head) or is_parquet(head)) and not in_utf8(path):
            raise TraceError(
                f"{path} cannot be opened: its name is not in UTF-8",
                hint="rename it, or link to it",
            )
        return head
    except FileNotFoundError as e:
        raise TraceError(f"there is no file {path}", hint=_near(path)) from e
    except OSError as e:
        raise TraceError(f"cannot read {path}: {e.strerror or e}") from e


def stdin() -> IO[bytes]:
    """Standard input. Raises TraceError where nothing can come through it."""
    # Python has None for a stream that was closed before it started.
    if sys.stdin is None:
        raise TraceError("standard input is closed", hint="pipe JSON lines into `-`")
    if sys.stdin.isatty():
        raise TraceError("standard input is a terminal", hint="pipe JSON lines into `-`")
    return sys.stdin.buffer


def refuse_own_output(
    source: str | os.PathLike[str], output: str | os.PathLike[str], what: str
) -> None:
    """Raise HkvError where writing `output`, the `what` of `source`, would replace `source`."""
    try:
        same = os.path.samefile(source, output)
    except OSError:
        return
    if same:
        raise HkvError(f"{source} would be overwritten by its own {what}", hint="name another file")


def refuse_stdin_twice(paths: Sequence[str]) -> None:
    """Raise HkvError where standard input, which can be read once, is named again."""
    if paths.count(STDIN) > 1:
        raise HkvError("standard input is named twice", hint="`-` can be read once")


def head_of_stream(path: str, stream: IO[bytes]) -> bytes:
    """The first bytes, taken from a stream. Raises TraceError where no JSON lines begin so."""
    shown = "standard input" if path == STDIN else path
    try:
        head = stream.read(HEAD_BYTES)
    except OSError as e:
        raise TraceError(f"cannot read {shown}: {e.strerror or e}") from e
    if is_duckdb(head) or is_parquet(head):
        kind = "DuckDB trace" if is_duckdb(head) else "Parquet file"
        raise TraceError(f"{shown} is a {kind}", hint=f"a {kind} must be given by its path")
    refuse_what_is_no_text(shown, head)
    return head


def is_duckdb(head: bytes) -> bool:
    """True where a file that starts with `head` is a DuckDB database."""
    return head[8:12] == b"DUCK"


def is_bundle(head: bytes) -> bool:
    """True where a file that starts with `head` is a zip, as bundles are."""
    return head.startswith(b"PK\x03\x04")


def is_parquet(head: bytes) -> bool:
    """True where a file that starts with `head` is a Parquet file."""
    return head.startswith(b"PAR1")


def refuse_what_is_no_text(path: str, head: bytes) -> None:
    """Raise TraceError where a file that starts with `head` cannot be JSON lines.

    A damaged line is an event with a problem; a file of another kind is no trace at all. Binary
    bytes alone do not tell: they may be the damage, if the first line is a line.
    """
    if not head:
        raise TraceError(f"{path} is empty", hint="a trace has at least one event")
    if head.startswith(b"\x1f\x8b"):
        return
    if is_parquet(head):
        raise TraceError(
            f"{path} is a Parquet file", hint="`hkvtool import` reads those that it exported"
        )
    if b"\0" in head and not head.lstrip().startswith(b"{"):
        raise TraceError(
            f"{path} is neither a DuckDB trace nor JSON lines",
            hint="`hkvtool import --help` lists what can be read",
        )


def _no_file(path: str, mode: int) -> TraceError:
    if not stat.S_ISDIR(mode):
        return TraceError(f"{path} is no regular file")
    if is_recording(path):
        return TraceError(f"{path} is a recording", hint=f"`hkvtool ingest {path}` makes a trace")
    if path.rstrip("/").endswith(".hkv"):
        return TraceError(f"{path} holds no recording", hint="nothing was ever recorded there")
    return TraceError(f"{path} is a folder", hint="name a file in it")


def _near(path: str) -> str:
    """A file beside it that was probably meant."""
    stem = path
    for ending in (".duckdb", ".gz", ".jsonl"):
        stem = stem.removesuffix(ending)
    for ending in (".duckdb", ".jsonl", ".jsonl.gz"):
        if stem + ending != path and os.path.exists(stem + ending):
            return f"there is {stem + ending}"
    return ""
