"""What only a GPU can show, in one script of under four minutes; skips, with the reason, without.

Kernels against their references; bandwidth against ceilings measured in the same run; whole
replays on the device; faults and controls in stream order, and a stale pointer in a graph that is
really captured. Run it as ``make gpu-check``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BAR = 0.8
"""Of the ceiling."""

MIB = 1 << 20


def reason() -> str | None:
    """Why nothing can be checked here."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "triton is not installed: pip install 'hkvtool[gpu]'"
    return None


def seconds(run: Callable[[], Any], times: int = 10) -> float:
    """The median device time of a call."""
    run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return sorted(taken)[times // 2]


def equal() -> dict[str, Any]:
    """Random geometries through every kernel and its reference."""
    sys.path.insert(0, str(Path(__file__).parent / "kernels"))
    import equal as geometries

    counts = {}
    for name, run in (("bytes", geometries.moved), ("checks", geometries.checked),
                      ("codes", geometries.coded)):  # fmt: skip
        for seed in range(100):
            run(geometries.Random(seed), "cuda")
        counts[name] = 100
    return counts


def bandwidth() -> dict[str, Any]:
    """Bytes a second of each operation over pages of V3.2 rows, and of V4's at odd offsets too."""
    from hkvtool.kernels import plain_page, split_page
    from hkvtool.kernels import triton_kernels as k
    from hkvtool.kernels.rows import Page

    size = 512 * MIB
    one, two = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = 2 * size / seconds(lambda: two.copy_(one))
    read = size / seconds(lambda: one.view(torch.int64).sum())
    pinned = torch.zeros(128 * MIB, dtype=torch.uint8, pin_memory=True)
    host = pinned.numel() / seconds(lambda: one[: pinned.numel()].copy_(pinned, non_blocking=True))
    out: dict[str, Any] = {"ceilings": {"copy": copy, "read": read, "host": host}}
    made = split_page(64, 584, 8, stride=37440, page_bytes=37440)
    pages = {
        "V3.2": plain_page(64, 656), "V4": made,
        "V4 misaligned": Page(made.starts, made.lengths, made.bytes, made.stride + 1, 3),
    }  # fmt: skip
    for name, each in pages.items():
        out[name] = _of_layout(each, one, copy, read)
    page = 37440
    here = torch.arange(2048, dtype=torch.int64) * page
    out["blocks"] = {
        "copy_blocks": 2 * 2048 * page / copy / seconds(
            lambda: k.copy_blocks(one, here, here + 4096 * page, page)),
        "swap": 2048 * page / host / seconds(lambda: k.swap(pinned, one, here, here, page)),
    }  # fmt: skip
    return out


def _of_layout(page: Any, buffer: torch.Tensor, copy: float, read: float) -> dict[str, float]:
    """Each operation's share of its ceiling over a buffer full of pages."""
    from hkvtool.kernels import pack
    from hkvtool.kernels import triton_kernels as k

    blocks = len(buffer) // (page.stride + 1) - 1
    rows = page.at(torch.arange(blocks).repeat_interleave(64), torch.arange(64).repeat(blocks))
    rows = type(rows)(rows.starts.cuda(), rows.lengths)
    stamps = pack(1, 1, torch.arange(len(rows)), 1, 1).cuda()
    care = torch.tensor([[-1, -1, 0, 0]], device="cuda").expand(len(rows), 4)
    moved = len(rows) * rows.row_bytes
    k.stamp(buffer, rows, stamps)
    return {
        "stamp": 2 * moved / seconds(lambda: k.stamp(buffer, rows, stamps)) / copy,
        "gather": 2 * moved / seconds(lambda: k.gather(buffer, rows)) / copy,
        "fingerprint": moved / seconds(lambda: k.fingerprint(buffer, rows)) / read,
        "verify": moved / seconds(lambda: k.verify(buffer, rows, stamps, care)) / read,
    }


def replays(traces: list[str]) -> dict[str, Any]:
    """The cases and the traces given, on the device."""
    from hkvtool.analyzers import check
    from hkvtool.model.shipped import shipped
    from hkvtool.replay.arms import Setting, survey
    from hkvtool.replay.confirming import confirm
    from hkvtool.replay.whole import replay
    from hkvtool.store import open_trace

    verdicts: dict[str, str] = {}
    for name in ("A14", "B01", "B07", "B09", "B10", "B15", "D02"):
        with open_trace(str(shipped("cases") / name / "bad.jsonl")) as trace:
            events = list(trace.events())
        setting = Setting(events, survey(events), "cuda", runs=5)
        report = check(iter(events))
        for finding in report.findings:
            if not finding.cause:
                verdicts[f"{name} {finding.code}"] = confirm(setting, report, finding).verdict
    whole = {}
    for path in traces:
        with open_trace(path) as trace:
            events = list(trace.events())
        whole[path] = replay(Setting(events, survey(events), "cuda")).as_json()
    return {"verdicts": verdicts, "whole": whole}


def streams() -> dict[str, Any]:
    """Store-before-write, load-over-reader, late writer, zero-after-load and staging reuse on two
    streams, each with its edge and without; a spin holds up what must come late."""
    from hkvtool.kernels import pack, plain_page
    from hkvtool.kernels import triton_kernels as k

    page = plain_page(64, 656)
    rows = page.at(torch.zeros(64, dtype=torch.int64), torch.arange(64))
    due = pack(1, 1, torch.arange(64), 1, 1).cuda()
    other = pack(2, 1, torch.arange(64), 1, 1).cuda()
    care = torch.tensor([[-1, -1, 0, 0]], device="cuda").expand(64, 4)
    compute, load = torch.cuda.Stream(), torch.cuda.Stream()

    def wrong(first: Callable[..., Any], second: Callable[..., Any], edge: bool) -> bool:
        """`first`, held up, on one stream and `second` on the other; does the reader get `due`?"""
        block = torch.zeros(64 * 656, dtype=torch.uint8, device="cuda")
        seen = torch.zeros_like(block)
        torch.cuda.synchronize()
        with torch.cuda.stream(compute):
            k.spin(2_000_000, "cuda")
            first(block, seen)
            done = compute.record_event()
        with torch.cuda.stream(load):
            if edge:
                load.wait_event(done)
            second(block, seen)
        torch.cuda.synchronize()
        return bool(k.verify(seen, rows, due, care)[0].any())

    def write(block: Any, seen: Any) -> None:
        k.stamp(block, rows, due)

    def take(block: Any, seen: Any) -> None:
        seen.copy_(block)

    def over(block: Any, seen: Any) -> None:
        k.stamp(block, rows, other)

    def read(block: Any, seen: Any) -> None:
        seen.copy_(block)

    def write_then_take(block: Any, seen: Any) -> None:
        k.stamp(block, rows, due)
        seen.copy_(block)

    pairs = {
        "store before write": (write, take),
        "late writer": (over, write_then_take),
        "zero after load": (lambda b, s: k.zero(b, rows), write_then_take),
    }
    # A reader held up, and a load over what it is to read: the block is right before both.
    found = {
        name: {"fault": None if name == "late writer" else wrong(one, two, False),
               "control": wrong(one, two, True)}
        for name, (one, two) in pairs.items()
    }  # fmt: skip
    found["late writer"]["fault"] = _after(compute, load, rows, over, write, k, due, care)
    for name in ("load over reader", "staging reuse"):
        found[name] = {"fault": _over(compute, load, rows, over, k, due, care, False),
                       "control": _over(compute, load, rows, over, k, due, care, True)}  # fmt: skip
    found["stale pointer in a captured graph"] = _captured(rows, k, due, care)
    return found


def _after(compute: Any, load: Any, rows: Any, over: Any, write: Any, k: Any, due: Any,
           care: Any) -> bool:  # fmt: skip
    """An old owner's write, held up, lands behind the new owner's."""
    block = torch.zeros(64 * 656, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(compute):
        k.spin(2_000_000, "cuda")
        over(block, None)
    with torch.cuda.stream(load):
        write(block, None)
    torch.cuda.synchronize()
    return bool(k.verify(block, rows, due, care)[0].any())


def _over(compute: Any, load: Any, rows: Any, over: Any, k: Any, due: Any, care: Any,
          edge: bool) -> bool:  # fmt: skip
    """A reader, held up, and a load (or the host's next batch) into what it is to read."""
    block = torch.zeros(64 * 656, dtype=torch.uint8, device="cuda")
    seen = torch.zeros_like(block)
    k.stamp(block, rows, due)
    torch.cuda.synchronize()
    with torch.cuda.stream(compute):
        k.spin(2_000_000, "cuda")
        seen.copy_(block)
        done = compute.record_event()
    with torch.cuda.stream(load):
        if edge:
            load.wait_event(done)
        over(block, None)
    torch.cuda.synchronize()
    return bool(k.verify(seen, rows, due, care)[0].any())


def _captured(rows: Any, k: Any, due: Any, care: Any) -> dict[str, bool]:
    """A graph that reads the memory it was captured on, and one captured again."""
    old, new, seen = (torch.zeros(64 * 656, dtype=torch.uint8, device="cuda") for _ in range(3))

    def capture(source: Any) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            seen.copy_(source)
        return graph

    stale = capture(old)
    k.stamp(new, rows, due)
    out = {}
    for name, graph in (("fault", stale), ("control", capture(new))):
        graph.replay()
        torch.cuda.synchronize()
        out[name] = bool(k.verify(seen, rows, due, care)[0].any())
    return out


def main() -> int:
    why = reason()
    if why is not None:
        print(f"gpu-check skipped: {why}")
        return 0
    started = time.perf_counter()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    for name, run in (("equal", equal), ("bandwidth", bandwidth), ("streams", streams)):
        found[name] = run()
    found["replays"] = replays(sys.argv[1:])
    found["seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(found, indent=2))
    low = [
        f"{layout} {name} {share:.2f}"
        for layout in ("V3.2", "V4", "blocks")
        for name, share in found["bandwidth"][layout].items() if share < BAR
    ]  # fmt: skip
    arms = [name for name, pair in found["streams"].items() if not pair["fault"] or pair["control"]]
    lost = [name for name, verdict in found["replays"]["verdicts"].items()
            if verdict != "confirmed"]  # fmt: skip
    dirty = [path for path, whole in found["replays"]["whole"].items() if whole["wrong_rows"]]
    for what, names in (("below the bar", low), ("arms that came out otherwise", arms),
                        ("not confirmed", lost), ("wrong bytes in", dirty)):  # fmt: skip
        if names:
            print(f"{what}: {', '.join(names)}", file=sys.stderr)
    return 1 if low or arms or lost or dirty else 0


if __name__ == "__main__":
    sys.exit(main())
