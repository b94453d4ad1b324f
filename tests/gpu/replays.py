"""Replays at cache depth on the device: they must come out as they do on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hkvtool.analyzers import check
from hkvtool.kernels import Rows
from hkvtool.model.event import Event
from hkvtool.model.shipped import shipped
from hkvtool.replay import capturing
from hkvtool.replay.arms import Arm, Setting, survey
from hkvtool.replay.confirming import confirm
from hkvtool.replay.whole import replay
from hkvtool.store import open_trace

DEMO = ("A01", "A33", "B10")
"""The bugs that `hkvtool demo` shows."""

OVERLAID = frozenset({"HKV403", "HKV404"})
"""Faults that lay rows of one write over one another: a GPU writes them in no order, so which of
them survive, and how many are wrong, is chance. That they are, and to whom, is not."""

SECONDS = 45
"""For all cases; those that come too late are counted as not run."""


def run(traces: list[str]) -> dict[str, Any]:
    """Traces whole, then the cases of public bugs, arm by arm."""
    whole = {}
    for path in [*(str(shipped("cases") / name / "good.jsonl") for name in DEMO),
                 *(str(shipped("cases") / name / "bad.jsonl") for name in DEMO),
                 *recorded(), *traces]:  # fmt: skip
        whole[label(path)] = found = compared(path)
        print(label(path), found, flush=True)
    with counted() as captured:
        found = cases()
    print(f"graphs captured: {captured[0]}", flush=True)
    return {"whole": whole, "cases": found, "graphs captured": captured[0]}


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many graphs replays capture meanwhile."""
    count, capture = [0], capturing.captured

    def one_more(buffer: torch.Tensor, rows: Rows) -> capturing.Gathering:
        count[0] += 1
        return capture(buffer, rows)

    capturing.captured = one_more
    yield count
    capturing.captured = capture


def recorded() -> list[str]:
    """The traces recorded in a stock engine that come with the package."""
    root = Path(str(shipped("real")))
    return [str(path) for path in sorted(root.glob("*/*.jsonl"))]


def label(path: str) -> str:
    return "/".join(Path(path).parts[-3:])


def events_of(path: str) -> list[Event]:
    """A trace's events."""
    with open_trace(path) as trace:
        return list(trace.events())


def compared(path: str) -> dict[str, Any]:
    """A whole trace on the device, and whether the CPU's reads found the same."""
    events = events_of(path)
    sequences = survey(events)
    out: dict[str, Any] = {"events": len(events)}
    accounts = {}
    for device in ("cpu", "cuda"):
        started = time.perf_counter()
        found = replay(Setting(events, sequences, device)).as_json()
        out[f"{device} seconds"] = round(time.perf_counter() - started, 2)
        accounts[device] = {key: value for key, value in found.items() if key != "device"}
    out.update({key: accounts["cuda"][key] for key in ("reads", "rows", "wrong_rows", "bytes")})
    out["same"] = accounts["cpu"] == accounts["cuda"]
    if not out["same"]:
        print(accounts, flush=True)
    return out


def wrong_at(arm: Arm, overlaid: bool) -> dict[int, int] | list[int]:
    """Wrong rows by event; the events alone, where how many there are is chance."""
    found = arm.account.wrong_at
    return sorted(found) if overlaid else found


def cases() -> dict[str, Any]:
    """Each finding of each case: the device's verdict, and the CPU's where it is another."""
    started = time.perf_counter()
    verdicts: dict[str, int] = {}
    other, late, count = [], 0, 0
    for folder in sorted(Path(str(shipped("cases"))).iterdir()):
        bad = folder / "bad.jsonl"
        if not bad.is_file():
            continue
        if time.perf_counter() - started > SECONDS:
            late += 1
            continue
        events = events_of(str(bad))
        sequences = survey(events)
        report = check(iter(events))
        for finding in report.findings:
            if finding.cause:
                continue
            told = {}
            for device in ("cpu", "cuda"):
                setting = Setting(events, sequences, device, runs=3)
                result = confirm(setting, report, finding)
                arms = [None if arm is None else
                        (arm.runs, arm.corrupt, wrong_at(arm, finding.code in OVERLAID))
                        for arm in (result.fault, result.control)]  # fmt: skip
                told[device] = (result.verdict, arms)
            count += 1
            verdicts[told["cuda"][0]] = verdicts.get(told["cuda"][0], 0) + 1
            if told["cpu"] != told["cuda"]:
                other.append(f"{folder.name} {finding.code}: {told}")
                print(other[-1], flush=True)
    return {"findings": count, "verdicts": verdicts, "not as on the CPU": other,
            "cases not run": late, "seconds": round(time.perf_counter() - started, 1)}  # fmt: skip
