"""Random geometries through a Triton kernel and its reference: the same bytes, and no others.

Run with the name of a family of operations; on a GPU with ``--device cuda``.
"""

from __future__ import annotations

import sys
from random import Random

import torch

from hkvtool.kernels import reference
from hkvtool.kernels import triton_kernels as device
from hkvtool.kernels.rows import Page, Rows, ordered_page, plain_page, split_page
from hkvtool.kernels.stamps import NEVER, pack

GUARD = 96
ORDERS = ("block,kv,token,head,dim", "block,head,token,kv,dim", "block,token,head,kv,dim",
          "block,kv,head,token,dim", "kv,block,token,head,dim")  # fmt: skip


def page(rng: Random) -> Page:
    """A page of any layout, with its stride and offset as they come."""
    rows = rng.choice([1, 2, 3, 5])
    kind = rng.randrange(4)
    if kind == 0:
        made = plain_page(rows, rng.choice([32, 33, 39, 64, 128, 656]))
    elif kind == 1:
        row, scale = rng.choice([(584, 8), (132, 4), (68, 4), (61, 5)])
        made = split_page(rows, row, scale)
    elif kind == 2:
        made = ordered_page(rows, rng.choice([64, 128, 256]), rng.choice(ORDERS).split(","), 4,
                            heads=rng.choice([1, 2, 8]))  # fmt: skip
    else:
        made = plain_page(1, rng.choice([64, 517, 1040]))
    pad = rng.choice([0, 0, 1, 8, 64])
    return Page(made.starts, made.lengths, made.bytes, made.stride + pad, rng.choice([0, 3, 8, 40]))


def rows_of(rng: Random, made: Page) -> Rows:
    """Some distinct rows: none, one, an odd number."""
    every = [(b, e) for b in range(4) for e in range(made.rows)]
    some = rng.sample(every, min(len(every), rng.choice([0, 1, 1, 3, 7])))
    return made.at(torch.tensor([b for b, _ in some], dtype=torch.int64),
                   torch.tensor([e for _, e in some], dtype=torch.int64))  # fmt: skip


def buffer_of(rng: Random, made: Page, where: str) -> torch.Tensor:
    """A buffer of the page's blocks, between guards, full of something."""
    every = made.at(torch.arange(4).repeat_interleave(made.rows), torch.arange(made.rows).repeat(4))
    size = int((every.starts + torch.tensor(made.lengths)).max()) + 2 * GUARD
    size += -size % 8
    seed = torch.Generator().manual_seed(rng.randrange(1 << 30))
    full = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=seed)
    full[rng.randrange(size) :] = NEVER
    return full.to(where)


def stamps_of(rng: Random, count: int) -> torch.Tensor:
    number = torch.tensor([rng.randrange(-(1 << 63), 1 << 63) for _ in range(count)],
                          dtype=torch.int64)  # fmt: skip
    return pack(number, rng.randrange(1, 99), torch.arange(count), rng.randrange(9), 2)


def same(one: torch.Tensor, two: torch.Tensor, what: str) -> None:
    if one.dtype != two.dtype or not torch.equal(one.cpu(), two.cpu()):
        raise SystemExit(f"{what} differs")


def moved(rng: Random, where: str) -> None:
    """stamp, gather, scatter, zero, copy_blocks, swap."""
    made = page(rng)
    rows, start = rows_of(rng, made), buffer_of(rng, made, where)
    stamps = stamps_of(rng, len(rows))
    for name, more in (("stamp", (stamps,)), ("zero", ()), ("scatter", ("packed",))):
        one, two = start.clone(), start.clone()
        given = more
        if name == "scatter":
            given = (torch.randint(0, 256, (len(rows), rows.row_bytes), dtype=torch.uint8),)
        getattr(reference, name)(one, rows, *given)
        getattr(device, name)(two, rows, *given)
        same(one, two, f"{name} of {rows.lengths}")
    same(reference.gather(start, rows), device.gather(start, rows), "gather")
    size = rng.choice([0, 1, 7, 24, 64])
    count = rng.choice([0, 1, 3])
    at = torch.tensor([rng.randrange(len(start) - 64) for _ in range(count)], dtype=torch.int64)
    to = torch.tensor(sorted(rng.sample(range(0, len(start) - 64, 64), count)), dtype=torch.int64)
    one, two = start.clone(), start.clone()
    reference.copy_blocks(one, at, to, size)
    device.copy_blocks(two, at, to, size)
    same(one, two, "copy_blocks")
    one, two = torch.zeros_like(start), torch.zeros_like(start)
    reference.swap(start, one, at, to, size)
    device.swap(start, two, at, to, size)
    same(one, two, "swap")


def checked(rng: Random, where: str) -> None:
    """verify, fingerprint, poison."""
    made = page(rng)
    rows, buffer = rows_of(rng, made), buffer_of(rng, made, where)
    stamps = stamps_of(rng, len(rows))
    reference.stamp(buffer, rows, stamps)
    if len(rows) and rng.random() < 0.7:
        first = int(rows.starts[0, rng.randrange(rows.starts.shape[1])])
        buffer[first + rng.randrange(min(rows.lengths))] ^= 1
    due = stamps if rng.random() < 0.5 else stamps_of(rng, len(rows))
    fields = torch.tensor([rng.choice([[-1, -1, 0, 0], [-1, -1, -1, 0]])]).expand(len(rows), 4)
    for one, two, what in zip(reference.verify(buffer, rows, due, fields),
                              device.verify(buffer, rows, due, fields), ("wrong", "found"),
                              strict=True):  # fmt: skip
        same(one, two, f"verify: {what}")
    same(reference.fingerprint(buffer, rows), device.fingerprint(buffer, rows), "fingerprint")
    for lifted in (False, False, True):
        one, two = buffer.clone(), buffer.clone()
        reference.poison(one, rows, lifted=lifted)
        device.poison(two, rows, lifted=lifted)
        same(one, two, "poison")
        buffer = one


def coded(rng: Random, where: str) -> None:
    """compress, decompress, index, select."""
    seed = torch.Generator().manual_seed(rng.randrange(1 << 30))
    n = rng.choice([0, 1, 3])
    for d, block, scale in ((512, 128, "fp32"), (448, 64, "ue8m0"), (128, 128, "fp32")):
        values = (torch.randn((n, d), generator=seed) * 10 ** rng.randrange(-5, 4)).to(where)
        one = reference.compress(values, block, scale)
        same(one, device.compress(values, block, scale), f"compress {d}")
        same(reference.decompress(one, d, block, scale), device.decompress(one, d, block, scale),
             f"decompress {d}")  # fmt: skip
    made = split_page(7, 132, 4)
    rows = made.at(torch.zeros(7, dtype=torch.int64), torch.arange(7))
    buffer = torch.zeros(7 * 132 + 4, dtype=torch.uint8, device=where)
    keys = torch.randn((7, 128), generator=seed).to(where)
    same(reference.index_rows(keys), device.index_rows(keys), "index")
    reference.scatter(buffer, rows, reference.index_rows(keys))
    query = torch.randn(128, generator=seed)
    for count in (0, 1, 3, 9):
        one, two = (m.select(buffer, rows, query, count)[0] for m in (reference, device))
        same(one, two, "select")


if __name__ == "__main__":
    where = "cuda" if "cuda" in sys.argv else "cpu"
    run, times = {"bytes": (moved, 40), "checks": (checked, 40), "codes": (coded, 6)}[sys.argv[1]]
    for seed in range(times):
        run(Random(seed), where)
    print(f"{times} geometries equal")
