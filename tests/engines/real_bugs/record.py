"""Record one bug with the release that is on the path: `python -m engines.real_bugs.record`."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hkvtool.recorder.vllm.attach import attach


def record(thread: str, out: Path) -> None:
    """Drive the bug under the recorder's hooks and write what they tell, event by event."""
    from .engine import Engine

    story: Any = importlib.import_module(f"{__package__}.vllm_{thread}")
    with out.open("w") as file, tempfile.TemporaryDirectory() as folder:

        def sink(event: Mapping[str, Any]) -> None:
            # Line by line: some of these bugs end in an engine that hangs.
            file.write(json.dumps(event, separators=(",", ":")) + "\n")
            file.flush()

        hooks = attach(sink)
        try:
            story.drive(Engine(story.plan(), sink, Path(folder)))
        finally:
            hooks.remove()
    if hooks.failed:
        raise SystemExit(f"hooks failed: {hooks.failed}")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
