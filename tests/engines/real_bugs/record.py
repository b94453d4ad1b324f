"""Record one bug with the release that is on the path: `python -m ...record THREAD FILE`."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hkvtool.recorder.vllm.attach import attach


def record(thread: str, out: Path) -> None:
    """Drive the bug under the recorder's hooks and write what they tell, event by event."""
    from .engine import Engine

    story: Any = importlib.import_module(f"{__package__}.vllm_{thread}")
    events: list[dict[str, Any]] = []
    hooks = attach(lambda event: events.append(dict(event)))
    try:
        with tempfile.TemporaryDirectory() as folder:
            story.drive(Engine(story.plan(), lambda e: events.append(dict(e)), Path(folder)))
    finally:
        hooks.remove()
        out.write_text("".join(json.dumps(e, separators=(",", ":")) + "\n" for e in events))
    if hooks.failed:
        raise SystemExit(f"hooks failed: {hooks.failed}")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
