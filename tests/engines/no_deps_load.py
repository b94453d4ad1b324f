"""A scheduler at work in a process that only vLLM's plug-in records: `no_deps_load.py FOLDER`.

It needs what an engine's environment has once the wheel was put there with --no-deps, so it takes
nothing from the tests.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from vllm.plugins import load_general_plugins

STEPS = 300


def main(folder: Path) -> None:
    load_general_plugins()
    from hkvtool.bench.vllm_loop import Drive, gemma_like, make_request, make_scheduler

    chance = random.Random(11)
    made = make_scheduler(folder, gemma_like(), events=True)
    drive = Drive(made.scheduler)
    stems = [[chance.randrange(3, 250) for _ in range(160)] for _ in range(4)]
    for number in range(STEPS):
        if number % 3 == 0 and len(made.scheduler.requests) < 8:
            prompt = chance.choice(stems)[: chance.randrange(20, 160)]
            drive.scheduler.add_request(
                make_request(made.scheduler, f"r{number}", prompt, chance.randrange(1, 40))
            )
        drive.step()
    drive.drain()
    print("steps", drive.steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
