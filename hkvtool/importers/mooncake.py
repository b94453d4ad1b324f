"""Mooncake-style request traces: not events of a cache but requests, to be run.

They tell when a request came, how long it is and which blocks its prompt shares; what a cache does
with them is worked out by the reference engine, which reads them itself.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from hkvtool.importers.foreign import HEAD_BYTES

NAME = "mooncake"


def sniff(path: Path) -> bool:
    """A line, gzipped or not, with the hashes of a prompt and its length."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as zipped:
                head = zipped.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return head.lstrip().startswith(b"{") and b'"hash_ids"' in head and b'"input_length"' in head
