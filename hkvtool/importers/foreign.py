"""What an importer is: a name, a look at the first bytes, and a reader of lines."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hkvtool.importers.lines import Line, Names
from hkvtool.model.errors import TraceError

HEAD_BYTES = 4096
_GZIP = 31
"""What zlib calls a gzip stream with the largest window."""


@dataclass(frozen=True)
class Importer:
    """One format of somebody else's.

    `sniff` says from a path and the first bytes of it (none of a folder) whether it is this one.
    `read` gives the lines of a trace, the `trace` line first. It is total: what cannot be read is a
    `dropped` line that names the offset, and TraceError is only for a file that is not this format.
    """

    name: str
    what: str
    sniff: Callable[[Path, bytes], bool]
    read: Callable[[Path, Names], Iterator[Line]]


def head_of(path: Path) -> bytes:
    """The first bytes of a file, of what is in it where it is gzipped; none of a folder. Raises
    TraceError."""
    if path.is_dir():
        return b""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as e:
        raise TraceError(f"cannot read {path}: {e.strerror or e}") from e
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(_GZIP).decompress(head, HEAD_BYTES)
    except zlib.error:
        # Whoever reads it tells what is wrong.
        return head
