"""Real vLLM engines that share a folder of KV, one after the other, each recorded by itself.

`python -m engines.sharing FOLDER` in the engine environment makes
`fixtures/engines/vllm-0.32.0-shared-folder` anew, and `python -m engines.sharing FOLDER tiers`
`fixtures/engines/vllm-0.32.0-shared-tier`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import engines.conftest  # noqa: F401  the environment of an engine

HERE = Path(__file__).parent

BLOCK = 32
FIRST, SECOND, THIRD = ([(i * k) % 190 + 5 for i in range(100)] for k in (7, 11, 13))
LONGER = FIRST[: 3 * BLOCK] + [(i * 17) % 190 + 5 for i in range(40)]
"""Goes on from all that is kept of the first."""


class Folder:
    """The folder that engines share, and their recordings."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.kv = place / "kv"
        self.key = place / "key"
        self.key.write_bytes(b"one key of all of these engines.")

    def run(
        self, name: str, prompts: Sequence[Sequence[int]], *, dies: bool = False, **options: Any
    ) -> list[int]:
        """An engine is asked for these prompts; how many tokens of each it did not compute."""
        path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
        done = subprocess.run(
            # The files of a tier lie under the model's name, whatever its config.
            [sys.executable, "-m", "engines.sharing_engine", str(self.place / "model"),
             str(self.kv), json.dumps(prompts), json.dumps(options)],
            env={**os.environ, "PYTHONPATH": path, "HKV_RECORD": str(self.recording(name)),
                 "HKV_HASH_KEY": str(self.key), "HKV_FINGERPRINT": "all",
                 "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": "hkvtool"},
            cwd=self.place, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert (done.returncode != 0) == dies, done.stderr[-3000:]
        lines = (line.split() for line in done.stdout.splitlines())
        return [int(words[1]) for words in lines if words[:1] == ["cached"]]

    def recording(self, name: str) -> Path:
        return self.place / f"{name}.hkv"

    def kept(self, prompt: Sequence[int]) -> Path:
        """Where the connector keeps a prompt: by its tokens alone, no salt and no model."""
        import numpy as np

        whole = (len(prompt) - 1) // BLOCK * BLOCK
        tokens = np.array(prompt[:whole], dtype=np.int64)
        found = self.kv / hashlib.md5(tokens.tobytes(), usedforsecurity=False).hexdigest()
        assert found.is_dir(), "the connector names its folders otherwise"
        return found

    def put(self, prompt: Sequence[int], other: Sequence[int]) -> None:
        """In the place of one prompt's files now lie another's."""
        here, there = self.kept(prompt), self.kept(other)
        shutil.rmtree(here)
        shutil.copytree(there, here)


def story(place: Path) -> Folder:
    """All of it: who stores, who loads that rightly, and what can go wrong between them."""
    one = Folder(place)
    assert one.run("store", [FIRST, SECOND, THIRD]) == [0, 0, 0]
    aside = place / "aside"
    shutil.copytree(one.kv, aside)
    assert one.run("load", [SECOND, FIRST, LONGER]) == [96, 96, 96]
    one.run("other-weights", [SECOND], config={"rope_theta": 5e5})
    one.run("other-salt", [SECOND], salt="another tenant")
    next(one.kept(SECOND).glob("*layers.3*")).unlink()
    one.run("gone", [SECOND], dies=True)
    shutil.rmtree(one.kv)
    shutil.copytree(aside, one.kv)
    one.put(FIRST, THIRD)
    assert one.run("exchanged", [SECOND, FIRST, LONGER]) == [96, 96, 96]
    # What the engine before has kept of the longer prompt rests on the wrong files.
    assert one.run("onward", [LONGER]) == [128]
    return one


def tier_story(place: Path) -> Folder:
    """The same below tiers: a file is a block of a group, named by vLLM's hash of it."""
    one = Folder(place)
    assert one.run("store", [FIRST, SECOND], tiers=True) == [0, 0]
    assert one.run("load", [FIRST], tiers=True) == [96]
    one.run("other-weights", [FIRST], tiers=True, config={"rope_theta": 5e5})
    here, there = sorted(one.kv.glob("*/*/*_g2/*.bin"))[:2]
    kept = here.read_bytes()
    here.write_bytes(there.read_bytes())
    there.write_bytes(kept)
    one.run("exchanged", [FIRST, SECOND], tiers=True)
    return one


def main(out: str, kind: str = "files") -> None:
    with tempfile.TemporaryDirectory() as aside:
        made = (tier_story if kind == "tiers" else story)(Path(aside))
        for recording in sorted(made.place.glob("*.hkv")):
            target = Path(out, f"{recording.stem}.jsonl")
            subprocess.run(
                [os.environ.get("HKV_PYTHON", sys.executable), "-m", "hkvtool", "export",
                 str(recording), "-o", str(target), "--force"],
                check=True,
            )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
