"""Bytes a second of each operation, as shares of ceilings measured in the same run."""

from __future__ import annotations

from typing import Any

import timing
import torch
import triton

from hkvtool.kernels import Page, Rows, ordered_page, pack, plain_page, split_page
from hkvtool.kernels import triton_kernels as k

SIZE = 1 << 30
MOST = 2 << 20
"""Rows at once: laying out more takes longer than what is measured on them."""

BLOCK = 37440
SWEPT: dict[str, list[tuple[int, ...]]] = {
    "gather": [(512, 1, 4), (512, 2, 4), (512, 4, 4, 2), (1024, 1, 8), (1024, 1, 4), (256, 1, 2),
               (256, 2, 2)],
    "scatter": [(512, 1, 4), (512, 2, 4), (512, 4, 4), (256, 2, 2)],
    "stamp": [(512, 1, 4), (1024, 1, 8), (256, 1, 2)],
    "zero": [(512, 1, 4), (1024, 1, 8), (256, 1, 2)],
    "verify": [(512, 2, 4), (512, 4, 4), (512, 8, 4), (256, 2, 2), (256, 4, 2), (256, 8, 2),
               (1024, 4, 8), (512, 4, 4, 2), (512, 8, 4, 2), (512, 8, 4, 3), (256, 8, 2, 2)],
    "poison": [(512, 1, 4), (512, 2, 4), (256, 2, 2), (256, 4, 2), (1024, 2, 8), (512, 4, 4, 2)],
    "fingerprint": [(256, 8, 2), (256, 16, 2), (256, 32, 2), (512, 8, 4), (512, 16, 4),
                    (512, 32, 4), (1024, 16, 4), (1024, 32, 4), (1024, 32, 8), (1024, 64, 4),
                    (512, 128, 4), (1024, 128, 4), (1024, 128, 8),
                    (512, 8, 4, 3), (512, 16, 4, 3), (1024, 16, 4, 3), (1024, 32, 4, 3),
                    (1024, 32, 8, 3)],
}  # fmt: skip
MOVED = [(256, 1, 2), (512, 1, 2), (512, 1, 4), (1024, 1, 4), (1024, 1, 8), (2048, 1, 8)]
"""Shapes tried: see `SHAPES` of the kernels."""

VARIED = ("V3.2", "V4", "indexer", "compressor", "K/V split, head", "recurrent")
"""Layouts that shapes are tried on."""


class Tried(dict[int, k.Shape]):
    """One shape for whatever units; knows the narrowest unit that was asked for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.narrowest = k.Shape(*shape), 0

    def __missing__(self, narrowest: int) -> k.Shape:
        self.narrowest = narrowest
        return self.shape


def layouts() -> dict[str, Page]:
    """Those that engines use, and one that begins on odd bytes."""
    v4 = split_page(64, 584, 8, stride=BLOCK, page_bytes=BLOCK)
    return {
        "V3.2 latents, 656 B": plain_page(64, 656),
        "V4 latents, 584 B, scales behind": v4,
        "indexer keys, 132 B, scales behind": split_page(64, 132, 4, stride=8448),
        "compressor state, 8192 B": plain_page(4, 8192, stride=32832),
        "K/V split, token first": ordered_page(
            16, 4096, ["block", "kv", "token", "head", "dim"], 1),
        "K/V split, head first": ordered_page(
            16, 4096, ["block", "kv", "head", "token", "dim"], 1),
        "K/V packed": ordered_page(16, 4096, ["block", "token", "head", "kv", "dim"], 1),
        "recurrent state, 6208 B": plain_page(1, 6208, stride=8192),
        "misaligned: V4 latents at odd bytes": Page(
            v4.starts, v4.lengths, v4.bytes, v4.stride + 1, 3),
        "misaligned: V4 latents at 4 bytes": Page(
            v4.starts, v4.lengths, v4.bytes, v4.stride + 4, 4),
    }  # fmt: skip


def filled(page: Page, size: int) -> Rows:
    """All rows of as many blocks as a buffer has room for."""
    blocks = min((size - page.offset) // page.stride - 1, MOST // page.rows)
    every = torch.arange(page.rows * page.parts)
    rows = page.at(torch.arange(blocks).repeat_interleave(len(every)), every.repeat(blocks))
    return rows.on("cuda")


def operations(buffer: torch.Tensor, rows: Rows) -> dict[str, tuple[Any, int, str]]:
    """Each operation over rows, the bytes it has to move, and its ceiling.

    What it has to move is all that it is given and gives: the rows, the list of where they lie,
    the stamps, the verdicts.
    """
    count, size = len(rows), rows.row_bytes
    listed = 8 * len(rows.lengths)
    stamps = pack(1, 1, torch.arange(count), 1, 1).cuda()
    care = torch.tensor([[-1, -1, 0, 0]], device="cuda").expand(count, 4)
    packed = torch.empty((count, size), dtype=torch.uint8, device="cuda")
    lifts = iter([False, True] * 999)
    works = {
        "stamp": (lambda: k.stamp(buffer, rows, stamps), size + listed + 32, "copy"),
        "verify": (lambda: k.verify(buffer, rows, stamps, care), size + listed + 65, "read"),
        "fingerprint": (lambda: k.fingerprint(buffer, rows), size + listed + 8, "read"),
        # Marked and lifted in turn: each time all rows are written.
        "poison": (lambda: k.poison(buffer, rows, lifted=next(lifts)), size + listed + 32, "copy"),
        "gather": (lambda: k.gather(buffer, rows), 2 * size + listed, "copy"),
        "scatter": (lambda: k.scatter(buffer, rows, packed), 2 * size + listed, "copy"),
        "zero": (lambda: k.zero(buffer, rows), size + listed, "fill"),
    }
    return {name: (run, each * count, top) for name, (run, each, top) in works.items()}


def of_layout(page: Page, buffer: torch.Tensor, tops: dict[str, float]) -> dict[str, float]:
    """The share of its ceiling that each operation comes to."""
    rows = filled(page, len(buffer))
    shares = {}
    for name, (run, moved, top) in operations(buffer, rows).items():
        shares[name] = moved / timing.seconds(run) / tops[top]
        if name == "poison":
            whole(buffer, rows)
    return shares


def whole(buffer: torch.Tensor, rows: Rows) -> None:
    """What was marked and lifted so many times is marked everywhere, or nowhere."""
    stamps = pack(1, 1, torch.arange(len(rows)), 1, 1).cuda()
    bad, _ = k.verify(buffer, rows, stamps, torch.full((1, 4), -1).expand(len(rows), 4))
    if bool(bad.any()) and not bool(bad.all()):
        raise SystemExit("poison left some rows marked and others not")


def of_blocks(
    one: torch.Tensor, pinned: torch.Tensor, tops: dict[str, float]
) -> dict[str, float]:  # fmt: skip
    """copy_blocks and swap of whole pages, in no order."""
    seed = torch.Generator().manual_seed(1)
    half, count = len(one) // 2 // BLOCK, len(pinned) // BLOCK
    source = torch.randperm(half, generator=seed) * BLOCK
    target = (torch.randperm(half, generator=seed) + half) * BLOCK
    copied, swapped = 2 * half * BLOCK, count * BLOCK
    here, far = source[:count], torch.arange(count) * BLOCK
    # Places are sorted and compared on the host first, which takes milliseconds.
    hold = 10 * timing.HOLD
    copy = timing.seconds(lambda: k.copy_blocks(one, source, target, BLOCK), hold=hold)
    around = timing.seconds(lambda: k.copy_blocks(one, source, source.roll(1), BLOCK), hold=hold)
    load = timing.seconds(lambda: k.swap(pinned, one, far, here, BLOCK), hold=hold)
    store = timing.seconds(lambda: k.swap(one, pinned, here, far, BLOCK), hold=hold)
    return {
        "copy_blocks": copied / copy / tops["copy"],
        "copy_blocks onto what is read (twice the bytes)": copied / around / tops["copy"],
        "swap from host": swapped / load / tops["from host"],
        "swap to host": swapped / store / tops["to host"],
    }


def of_codes() -> dict[str, float]:
    """Bytes read and written a second by what converts; no ceiling is claimed for these."""
    values = torch.randn((1 << 18, 512), device="cuda")
    packed = k.compress(values, 128)
    moved = values.numel() * 4 + packed.numel()
    return {
        "compress": moved / timing.seconds(lambda: k.compress(values, 128)),
        "decompress": moved / timing.seconds(lambda: k.decompress(packed, 512, 128)),
    }


def run() -> dict[str, Any]:
    """Shares of the ceilings, by layout and operation."""
    one, two = (torch.zeros(SIZE, dtype=torch.uint8, device="cuda") for _ in range(2))
    one.random_(0, 256)
    pinned = torch.zeros(SIZE // 4, dtype=torch.uint8).pin_memory()
    tops = timing.ceilings(one, two, pinned)
    print({name: f"{top / 1e9:.0f} GB/s" for name, top in tops.items()}, flush=True)
    del two
    found: dict[str, Any] = {"ceilings": tops, "layouts": {}}
    for name, page in layouts().items():
        found["layouts"][name] = of_layout(page, one, tops)
        shown = ", ".join(f"{n} {s:.2f}" for n, s in found["layouts"][name].items())
        print(f"{name}: {shown}", flush=True)
    found["blocks"] = of_blocks(one, pinned, tops)
    found["codes"] = of_codes()
    print(found["blocks"], found["codes"], flush=True)
    return found


def sweep() -> dict[str, Any]:
    """The shares that other shapes come to: which ones the kernels should have."""
    one, two = (torch.zeros(SIZE, dtype=torch.uint8, device="cuda") for _ in range(2))
    pinned = torch.zeros(SIZE // 4, dtype=torch.uint8).pin_memory()
    tops = timing.ceilings(one, two, pinned)
    two = torch.empty(0)
    found: dict[str, Any] = {"ceilings": tops}
    classes: dict[str, dict[int, list[dict[str, float]]]] = {}
    for name, page in layouts().items():
        if not name.startswith(VARIED):
            continue
        for operation, (run, moved, top) in operations(one, filled(page, len(one) // 2)).items():
            shares: dict[str, float] = {}
            kept = k.SHAPES[operation]
            for shape in SWEPT[operation]:
                k.SHAPES[operation] = tried = Tried(shape)
                try:
                    shares[str(shape)] = round(moved / timing.seconds(run, 3) / tops[top], 3)
                except triton.runtime.errors.OutOfResources as too_much:
                    print(name, operation, shape, too_much, flush=True)
            k.SHAPES[operation] = kept
            found.setdefault(operation, {})[name] = shares
            classes.setdefault(operation, {}).setdefault(tried.narrowest, []).append(shares)
            print(operation, name, sorted(shares.items(), key=lambda of: -of[1]), flush=True)
    found["best"] = {
        operation: {narrowest: best(of) for narrowest, of in sorted(widths.items())}
        for operation, widths in classes.items()
    }
    print("best:", *found["best"].items(), sep="\n", flush=True)
    for shape in MOVED:
        k.SHAPES["swap"] = Tried(shape)
        found[f"blocks {shape}"] = of_blocks(one, pinned, tops)
        print("blocks", shape, found[f"blocks {shape}"], flush=True)
    return found


def best(layouts: list[dict[str, float]]) -> tuple[str, float]:
    """The shape that does best where it does worst."""
    low = {shape: min(shares.get(shape, 0.0) for shares in layouts) for shape in layouts[0]}
    return max(low.items(), key=lambda of: of[1])
