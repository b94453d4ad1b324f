"""One of several engines that record to one folder: scheduler and cache manager under a load."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import engines.conftest  # noqa: F401  the environment of an engine
from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, random_load
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.vllm import plugin

TURNS, STEPS = 12, 10


def main(folder: str, own: str, seed: str) -> None:
    recording = Recording.join(folder)
    assert isinstance(recording, Recording), recording
    plugin.start(recording)
    drive = Drive(make_scheduler(Path(own), gemma_like()).scheduler)
    print("ready", flush=True)
    for i, _ in enumerate(random_load(drive, random.Random(int(seed)), TURNS * STEPS)):
        if i % STEPS == 0:
            # The other has its turn.
            sys.stdin.readline()
            print("goes on", flush=True)
    drive.drain()
    plugin.stop(recording)
    recording.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
