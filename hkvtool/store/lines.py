"""A trace of JSON lines, read as it stands."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.rows import Names, Row, encode
from hkvtool.state.batch import Batch
from hkvtool.store.columns import FOLDED_KINDS, Chunk
from hkvtool.store.filters import Filter
from hkvtool.store.scratch import Spool
from hkvtool.store.summary import Summary
from hkvtool.store.trace import CHUNK_ROWS, Trace

_KEPT_EVENTS = 100_000
"""Traces of up to so many events are parsed once and kept; longer ones are read anew each time."""

_CHUNK_WEIGHT = 8 << 20
"""List items and characters that a chunk may hold: 64 Ki events of a real engine stay far
below, and hostile ones do not fill the memory."""

Progress = Callable[[int], None]
"""Told how many bytes of the file have been read."""


@contextmanager
def open_lines(
    path: str | os.PathLike[str], *, shown: str = "", progress: Progress | None = None
) -> Iterator[IO[bytes]]:
    """The bytes of a JSON-lines file, gzipped or not; a cut or broken archive is a TraceError.

    `shown` is what to call the file in an error.
    """
    shown = shown or os.fspath(path)
    with open(path, "rb") as raw:
        source: Any = _Counted(raw, progress) if progress else raw
        head = raw.read(2)
        raw.seek(0)
        with _unzipped(source, head, shown) as stream:
            yield stream


@contextmanager
def stream_lines(path: str, stream: IO[bytes], head: bytes) -> Iterator[IO[bytes]]:
    """The same of a stream that `head` has been taken from."""
    with _unzipped(io.BufferedReader(_Rejoined(head, stream)), head, path) as lines:
        yield lines


@contextmanager
def _unzipped(source: Any, head: bytes, shown: str) -> Iterator[IO[bytes]]:
    if not head.startswith(b"\x1f\x8b"):
        yield source
        return
    with gzip.GzipFile(fileobj=source) as stream:
        try:
            yield stream  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as e:
            raise TraceError(
                f"{shown} is cut or damaged: {e}",
                hint=f"`zcat {shown} > whole.jsonl` keeps the lines before the damage",
            ) from e


class _Rejoined(io.RawIOBase):
    """A stream with its head put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class _Counted:
    """A file that tells how far it has been read."""

    def __init__(self, raw: IO[bytes], progress: Progress) -> None:
        self._raw, self._progress, self._read = raw, progress, 0

    def _told(self, data: bytes) -> bytes:
        self._read += len(data)
        self._progress(self._read)
        return data

    def read(self, size: int = -1) -> bytes:
        return self._told(self._raw.read(size))

    def readline(self, size: int = -1) -> bytes:
        return self._told(self._raw.readline(size))


def in_chunks(rows: Iterable[Row], size: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """Rows gathered into chunks of at most `size`, fewer where they are heavy."""
    gathered: list[Row] = []
    weight = 0
    for row in rows:
        gathered.append(row)
        weight += len(row.blocks or ()) + len(row.blocks2 or ()) + len(row.rest or ())
        if len(gathered) >= size or weight >= _CHUNK_WEIGHT:
            yield Chunk.of(gathered)
            gathered, weight = [], 0
    if gathered:
        yield Chunk.of(gathered)


class JsonlTrace(Trace):
    """A `.jsonl` or `.jsonl.gz` file. Nothing is read before it is asked for.

    `file` is where the lines are, where that is not what the user named.
    """

    def __init__(self, path: str, file: str | None = None) -> None:
        super().__init__(path)
        self._file = file or path
        self._names = Names()
        self._summary: Summary | None = None
        self._kept: list[Event] | None = None
        self._short = True

    @property
    def meta(self) -> dict[str, Any]:
        return self._summarized().facts(self._names)

    @property
    def names(self) -> Names:
        self._summarized()
        return self._names

    @property
    def kinds(self) -> dict[str, int]:
        return self._summarized().kind_counts()

    def events(
        self,
        since: int | None = None,
        until: int | None = None,
        req: str | int | None = None,
        kinds: Collection[str] | None = None,
        block: tuple[str | int, int] | None = None,
    ) -> Iterator[Event]:
        return Filter(since, until, req, kinds, block).keep(self._all())

    def batches(
        self,
        size: int = CHUNK_ROWS,
        since: int | None = None,
        until: int | None = None,
        folded: bool = False,
    ) -> Iterator[Batch]:
        events = self.events(since, until, kinds=FOLDED_KINDS if folded else None)
        rows = (encode(e, self._names) for e in events if not (folded and e.problem))
        for chunk in in_chunks(rows, size):
            yield chunk.batch(folded)

    def arrow(self, size: int = CHUNK_ROWS) -> Iterator[Any]:
        for chunk in in_chunks((encode(event, self._names) for event in self._all()), size):
            yield chunk.record_batch()

    def _all(self) -> Iterator[Event]:
        """Every event; those of a short trace are parsed once and kept."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Event] = []
        for event in self._read():
            if self._short:
                kept.append(event)
                if len(kept) > _KEPT_EVENTS:
                    self._short = False
                    kept = []
            yield event
        if self._short:
            self._kept = kept

    def _read(self) -> Iterator[Event]:
        some = False
        try:
            with open_lines(self._file, shown=self.path) as stream:
                for event in read_jsonl(stream):
                    some = True
                    yield event
        except OSError as e:
            raise TraceError(f"cannot read {self.path}: {e.strerror or e}") from e
        if not some:
            # Nothing but empty lines must not pass for a trace in which nothing is wrong.
            raise TraceError(
                f"{self.path}: there is no event in it", hint="a trace has at least one event"
            )

    def _summarized(self) -> Summary:
        if self._summary is None:
            summary = Summary()
            for chunk in in_chunks(encoded(self._all(), self._names, summary)):
                summary.add(chunk)
            summary.add_source(self.path)
            self._summary = summary
        return self._summary


def encoded(events: Iterable[Event], names: Names, summary: Summary) -> Iterator[Row]:
    """The rows of events, each of which `summary` sees where it wants to."""
    for event in events:
        if summary.wants(event):
            summary.see(event)
        yield encode(event, names)


class StreamTrace(JsonlTrace):
    """JSON lines from a pipe and what was its `head`, put aside to be read more than once."""

    def __init__(self, path: str, stream: IO[bytes], head: bytes) -> None:
        self._spool = Spool()
        try:
            self._spool.file.write(head)
            shutil.copyfileobj(stream, self._spool.file, 1 << 20)
            self._spool.file.flush()
        except OSError as e:
            self.close()
            raise TraceError(
                f"cannot put aside what comes through {path}: {e.strerror or e}",
                hint="import it (`hkvtool import - -o FILE`), or point TMPDIR to a larger disk",
            ) from e
        super().__init__(path, self._spool.path)

    def close(self) -> None:
        self._spool.cleanup()
