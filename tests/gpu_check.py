"""What only a GPU can show, in under four minutes; skips, with the reason, without one.

Kernels against their references; bandwidth against ceilings measured in the same run; faults and
controls in stream order, and a stale pointer in a graph that is really captured; whole replays on
the device, and the cases' arms; the kernels under a memory checker. Each is a process of its own:
what one of them breaks does not stop the others. Run it as ``make gpu-check``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 0.8
"""Of the ceiling, wherever pages are aligned."""

LIMIT = 235
"""Seconds for everything."""

ROUNDS = (("environment",), ("bandwidth",), ("streams",), ("equal", "replays", "sanitized"))
"""What is timed runs alone."""

SECONDS = {"environment": 60, "bandwidth": 75, "streams": 45, "equal": 90, "replays": 90,
           "sanitized": 90, "sweep": 75}  # fmt: skip


def reason() -> str | None:
    """Why nothing can be checked here."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "triton is not installed: pip install 'hkvtool[gpu]'"
    return None


def one(step: str, result: Path, traces: list[str]) -> None:
    """Run a step in this process."""
    sys.path.insert(0, str(Path(__file__).parent / "gpu"))
    module = importlib.import_module("bandwidth" if step == "sweep" else step)
    if step == "sweep":
        found = module.sweep()
    else:
        found = module.run(traces) if step == "replays" else module.run()
    result.write_text(json.dumps(found))


def every(out: Path, traces: list[str], rounds: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Run the steps, those of a round side by side; what they found, or why nothing."""
    started = time.monotonic()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, (out / "gpu-check.log").open("w") as log:
        for steps in rounds:
            running = {}
            for step in steps:
                said = (Path(folder) / f"{step}.log").open("w")
                command = [sys.executable, "-u", __file__, "--step", step, "--result",
                           str(Path(folder) / f"{step}.json"), *traces]  # fmt: skip
                running[step] = subprocess.Popen(
                    command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
                )
                said.close()
            begun = time.monotonic()
            for step, process in running.items():
                left = min(SECONDS[step] - (time.monotonic() - begun),
                           LIMIT - (time.monotonic() - started))  # fmt: skip
                try:
                    status = f"exit status {process.wait(max(1, left))}"
                except subprocess.TimeoutExpired:
                    # Its own session: what the step has started ends with it.
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    status = "not done in time"
                took = time.monotonic() - begun
                log.write(f"\n===== {step}: {status}, {took:.1f} s\n")
                log.write((Path(folder) / f"{step}.log").read_text(errors="replace"))
                log.flush()
                result = Path(folder) / f"{step}.json"
                found[step] = {"status": status, "seconds": round(took, 1), "found": None}
                if result.is_file():
                    found[step]["found"] = json.loads(result.read_text())
                (out / "gpu-check.json").write_text(json.dumps(found, indent=1))
    found["seconds"] = round(time.monotonic() - started, 1)
    (out / "gpu-check.json").write_text(json.dumps(found, indent=1))
    return found


def failures(found: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    wrong = []
    for step, about in found.items():
        if step == "seconds":
            continue
        result = about["found"]
        if result is None:
            wrong.append(f"{step}: {about['status']}, nothing found; see gpu-check.log")
            continue
        judge = JUDGES.get(step)
        wrong += [f"{step}: {what}" for what in judge(result)] if judge else []
    return wrong


def _equal(found: dict[str, Any]) -> list[str]:
    return [f"{family} {seed}" for family, one in found.items() for seed in one["wrong"]]


def slow(found: dict[str, Any]) -> list[str]:
    """Which operations do not come to the bar, on this GPU and on this day."""
    return [
        f"{name} of {layout}: {share:.2f} of the ceiling"
        for layout, shares in {**found["layouts"], "blocks": found["blocks"]}.items()
        for name, share in shares.items()
        if share < BAR and "misaligned" not in layout and "twice" not in name
    ]


def _streams(found: dict[str, Any]) -> list[str]:
    runs = found["runs"]
    return [
        f"{name}: {arms['fault']} of {runs} faults corrupt, {arms['control']} controls"
        for name, arms in found.items()
        if name != "runs" and (arms["fault"] != runs or arms["control"])
    ]


def _replays(found: dict[str, Any]) -> list[str]:
    other = [f"{path} is not as on the CPU" for path, one in found["whole"].items()
             if not one["same"]]  # fmt: skip
    if not found["graphs captured"]:
        other.append("no graph was captured")
    return other + found["cases"]["not as on the CPU"]


def _sanitized(found: dict[str, Any]) -> list[str]:
    return [f"{family}: {one}" for family, one in found.items()
            if family != "skipped" and one["exit"]]  # fmt: skip


JUDGES = {"equal": _equal, "streams": _streams, "replays": _replays,
          "sanitized": _sanitized}  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """The shares of the ceilings, a row a layout."""
    lines = ["ceilings: " + ", ".join(f"{name} {top / 1e9:,.0f} GB/s"
                                      for name, top in found["ceilings"].items())]  # fmt: skip
    for layout, shares in {**found["layouts"], "blocks": found["blocks"]}.items():
        shown = "  ".join(f"{name} {share:.2f}" for name, share in shares.items())
        lines.append(f"{layout:38} {shown}")
    return "\n".join(lines)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("traces", nargs="*", help="traces to replay besides those that ship")
    asked.add_argument("--out", type=Path, default=Path(), help="where the results go")
    asked.add_argument("--only", default="", help="steps, comma-separated; side by side with +")
    asked.add_argument("--sweep", action="store_true", help="try other kernel constants as well")
    asked.add_argument("--table", type=Path, help="print the docs section of a run's results")
    asked.add_argument("--into", type=Path, help="with --table: write it into this page instead")
    asked.add_argument("--step", default="", help=argparse.SUPPRESS)
    asked.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    traces = [str(Path(trace).resolve()) for trace in given.traces]
    if given.step:
        one(given.step, given.result, traces)
        return 0
    if given.table:
        sys.path.insert(0, str(Path(__file__).parent / "gpu"))
        measured = importlib.import_module("measured")
        results = json.loads(given.table.read_text())
        if given.into:
            measured.put(given.into, results)
        else:
            print(measured.section(results))
        return 0
    why = reason()
    if why is not None:
        print(f"gpu-check skipped: {why}")
        return 0
    rounds = (*ROUNDS, *((("sweep",),) if given.sweep else ()))
    if given.only:
        rounds = tuple(tuple(steps.split("+")) for steps in given.only.split(","))
    found = every(given.out, traces, rounds)
    for step, about in found.items():
        if step == "seconds":
            print(f"all: {about} s")
        else:
            print(f"{step}: {about['status']}, {about['seconds']} s")
            if step in ("streams", "equal", "sanitized", "replays"):
                print("  " + json.dumps(about["found"])[:3000])
    for operation, shapes in ((found.get("sweep", {}).get("found") or {}).get("best", {})).items():
        print(f"best for {operation}: {shapes}")
    bandwidth = found.get("bandwidth", {}).get("found")
    if bandwidth:
        print(table(bandwidth))
        for line in slow(bandwidth):
            print(f"below {BAR:.0%}: {line}")
    wrong = failures(found)
    for line in wrong:
        print(f"not as it should be: {line[:600]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
