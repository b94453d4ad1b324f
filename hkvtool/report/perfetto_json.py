"""A timeline as Chrome's JSON: needs no dependency, and chrome://tracing reads it too."""

from __future__ import annotations

import json
from typing import IO

from hkvtool.report.perfetto import Record


class JsonTimeline:
    """One object with all records, written as they come."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._before = b'{"displayTimeUnit":"ns","traceEvents":[\n'

    def put(self, record: Record) -> None:
        self._stream.write(self._before + json.dumps(record, separators=(",", ":")).encode())
        self._before = b",\n"

    def end(self, about: Record) -> None:
        self._stream.write(f'\n],"otherData":{json.dumps(about)}}}\n'.encode())
