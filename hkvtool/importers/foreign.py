"""What an importer is: a name, a look at the first bytes, and a reader of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hkvtool.importers.lines import Line, Names

HEAD_BYTES = 4096


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
