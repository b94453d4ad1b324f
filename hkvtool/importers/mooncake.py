"""Mooncake-style request traces: not events of a cache but requests, to be run.

They tell when a request came, how long it is and which blocks its prompt shares; what a cache does
with them is worked out by the reference engine, which reads them itself.
"""

from __future__ import annotations

from pathlib import Path

from hkvtool.importers.foreign import head_of

NAME = "mooncake"


def sniff(path: Path) -> bool:
    """A line, gzipped or not, with the hashes of a prompt and its length."""
    if not path.is_file():
        return False
    head = head_of(path)
    return head.lstrip().startswith(b"{") and b'"hash_ids"' in head and b'"input_length"' in head
