"""Writing a segment: whole and on disk under its name, or not there. Runs where pyarrow is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from hkvtool.model.manifest import MANIFEST, SEGMENT_SUFFIX, Segment, read_manifest
from hkvtool.model.ring_reader import Record

_TEMPORARY = ".part"


def write_segment(folder: str, file: str, rows: Sequence[Sequence[Record]]) -> int:
    """Write the records of some rings, a row group each; returns how many bytes that takes.
    Raises OSError, and nothing is left of it then."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = os.path.join(folder, file)
    aside = place + _TEMPORARY
    schema = pa.schema(
        [("kind", pa.uint8()), ("seq", pa.int64()), ("ts", pa.int64()), ("payload", pa.binary())]
    )
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as out:
            with pq.ParquetWriter(
                out, schema, compression="zstd", use_dictionary=["kind"],
                column_encoding={"seq": "DELTA_BINARY_PACKED", "ts": "DELTA_BINARY_PACKED"},
                write_statistics=["seq", "ts"],
            ) as writer:  # fmt: skip
                for records in rows:
                    writer.write_table(
                        pa.table(
                            [
                                pa.array([r.kind for r in records], pa.uint8()),
                                pa.array([r.seq for r in records], pa.int64()),
                                pa.array([r.ts for r in records], pa.int64()),
                                pa.array([r.payload for r in records], pa.binary()),
                            ],
                            schema=schema,
                        ),
                        row_group_size=max(1, len(records)),
                    )
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        os.rename(aside, place)
        sync_folder(folder)
        return size
    except BaseException:
        for name in (aside, place):
            with suppress(OSError):
                os.unlink(name)
        raise


def append_line(folder: str, segment: Segment) -> None:
    """Say that a segment counts. Raises OSError; the manifest is then as it was."""
    path = os.path.join(folder, MANIFEST)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        before = os.fstat(fd).st_size
        line = (segment.line() + "\n").encode()
        try:
            while line:
                line = line[os.write(fd, line) :]
            os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, before)
            raise
        if not before:
            sync_folder(folder)
    finally:
        os.close(fd)


def recovered(folder: str) -> list[Segment]:
    """The segments that count, once what a sealer that died had begun is taken away. Raises
    TraceError, OSError."""
    path = os.path.join(folder, MANIFEST)
    with suppress(FileNotFoundError), open(path, "r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
    segments = read_manifest(folder)
    known = {segment.file for segment in segments}
    for name in os.listdir(folder):
        if name.endswith((SEGMENT_SUFFIX, _TEMPORARY)) and name not in known:
            os.unlink(os.path.join(folder, name))
    return segments


def sync_folder(folder: str) -> None:
    """Make the names in a folder last."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Some network file systems take no fsync of a folder.
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
