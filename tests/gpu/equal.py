"""Kernels against their references, which run on the CPU, over random geometries."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

TIMES = {"bytes": 100, "checks": 80, "codes": 20}

MOST = 8
"""Differences after which a family is given up."""


def run() -> dict[str, Any]:
    """How many geometries of each family came out equal; the first ones that did not."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
    import geometries

    counts: dict[str, Any] = {}
    for name, times in TIMES.items():
        one, _ = geometries.FAMILIES[name]
        wrong = []
        started = time.perf_counter()
        for seed in range(times):
            try:
                one(Random(seed), "cuda")
            except (Exception, SystemExit) as differs:
                if not isinstance(differs, SystemExit):
                    traceback.print_exc()
                wrong.append(f"seed {seed}: {differs}"[:500])
                print(name, wrong[-1], flush=True)
                if len(wrong) == MOST:
                    break
        counts[name] = {"geometries": times, "wrong": wrong,
                        "seconds": round(time.perf_counter() - started, 1)}  # fmt: skip
        print(name, counts[name], flush=True)
    return counts
