"""Random geometries through a Triton kernel and its reference: the same bytes, and no others.

Run with the name of a family of operations; on a GPU with ``cuda`` behind it, and how many.
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


BLOCKS = {"cpu": 4, "cuda": 40}
"""A GPU has its work split among many programs; the interpreter has not the time."""


def cut(rng: Random, where: str) -> None:
    """Other tiles: rows that share a program, and rows that are the work of several. On a GPU
    fewer of them, as each is compiled anew."""
    tile = rng.choice([16, 128, 1024] if where == "cpu" else [128, 1024, 1024])
    for operation in ("gather", "scatter", "stamp", "zero", "verify", "poison", "fingerprint"):
        shape = device.Shape(tile, rng.choice([1, 2]), 4, rng.choice([1, 1, 3]))
        if operation == "fingerprint":
            shape = shape._replace(times=rng.choice([4, 16, 128]))
        device.SHAPES[operation] = dict.fromkeys((16, 8, 4), shape)


def page(rng: Random, where: str = "cpu") -> Page:
    """A page of any layout, with its stride and offset as they come."""
    rows = rng.choice([1, 2, 3, 5] if where == "cpu" else [1, 3, 16, 64])
    kind = rng.randrange(4)
    if kind == 0:
        made = plain_page(rows, rng.choice([32, 33, 39, 64, 128, 656]))
    elif kind == 1:
        row, scale = rng.choice([(584, 8), (132, 4), (68, 4), (61, 5)])
        made = split_page(rows, row, scale)
    elif kind == 2:
        made = ordered_page(rows, rng.choice([64, 128, 256]), rng.choice(ORDERS).split(","), BLOCKS[where],
                            heads=rng.choice([1, 2, 8]))  # fmt: skip
    else:
        made = plain_page(
            1, rng.choice([64, 517, 1040] if where == "cpu" else [64, 6208, 8193, 32768])
        )
    # Planes over all blocks lie where the stride says: a wider one would lay blocks over others.
    planes = len(made.lengths) > 1 and int(made.starts.max()) > made.stride
    pad = 0 if planes else rng.choice([0, 0, 1, 8, 64])
    return Page(made.starts, made.lengths, made.bytes, made.stride + pad, rng.choice([0, 3, 8, 40]))


def rows_of(rng: Random, made: Page, where: str = "cpu") -> Rows:
    """Some distinct rows: none, one, an odd number."""
    every = [(b, e) for b in range(BLOCKS[where]) for e in range(made.rows)]
    counts = [0, 1, 1, 3, 7] if where == "cpu" else [0, 1, 7, 129, 1001, len(every)]
    some = rng.sample(every, min(len(every), rng.choice(counts)))
    return made.at(torch.tensor([b for b, _ in some], dtype=torch.int64),
                   torch.tensor([e for _, e in some], dtype=torch.int64))  # fmt: skip


def buffer_of(rng: Random, made: Page, where: str = "cpu") -> torch.Tensor:
    """A buffer of the page's blocks, between guards, full of something; on the CPU."""
    blocks = BLOCKS[where]
    every = made.at(torch.arange(blocks).repeat_interleave(made.rows),
                    torch.arange(made.rows).repeat(blocks))  # fmt: skip
    size = int((every.starts + torch.tensor(made.lengths)).max()) + 2 * GUARD
    size += -size % 8
    seed = torch.Generator().manual_seed(rng.randrange(1 << 30))
    full = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=seed)
    full[rng.randrange(size) :] = NEVER
    return full


def stamps_of(rng: Random, count: int) -> torch.Tensor:
    number = torch.tensor([rng.randrange(-(1 << 63), 1 << 63) for _ in range(count)],
                          dtype=torch.int64)  # fmt: skip
    return pack(number, rng.randrange(1, 99), torch.arange(count), rng.randrange(9), 2)


def same(one: torch.Tensor, two: torch.Tensor, what: str) -> None:
    if one.dtype != two.dtype or not torch.equal(one.cpu(), two.cpu()):
        raise SystemExit(f"{what} differs")


def near(codes: torch.Tensor, parts: torch.Tensor, scale: str) -> None:
    """Codes are the ones of torch's own conversion on that device, or beside them."""
    most = parts.abs().amax(dim=2, keepdim=True).clamp(min=1e-4)
    unit = most / reference.FP8_MAX
    if scale == "ue8m0":
        unit = reference.power(reference.ceil_exponent(unit))
    real = (parts / unit).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    steps = (codes.reshape(-1).to(torch.int32) - real.reshape(-1).to(torch.int32)).abs()
    if len(steps) and int(steps.max()) > 1:
        raise SystemExit(f"a code is {int(steps.max())} from torch's")


def moved(rng: Random, where: str) -> None:
    """stamp, gather, scatter, zero, copy_blocks, swap; two layouts over one another's bytes."""
    pages = [page(rng, where), page(rng, where)]
    start = max((buffer_of(rng, made, where) for made in pages), key=len)
    one, two = start.clone(), start.to(where, copy=True)
    for made in pages:
        rows = rows_of(rng, made, where)
        # Whoever launches many kernels has sent the rows ahead.
        there = rows.on(where) if rng.random() < 0.5 else rows
        packed = torch.randint(0, 256, (len(rows), rows.row_bytes), dtype=torch.uint8)
        for name, more in (
            ("scatter", (packed,)), ("stamp", (stamps_of(rng, len(rows)),)), ("zero", ()),
        ):  # fmt: skip
            three, four = one.clone(), two.clone()
            getattr(reference, name)(three, rows, *more)
            getattr(device, name)(four, there, *more)
            same(three, four, f"{name} of {rows.lengths}")
            if name != "zero" or rng.random() < 0.3:
                one, two = three, four
        same(reference.gather(one, rows), device.gather(two, there), f"gather of {rows.lengths}")
    size = rng.choice([0, 1, 7, 24, 64] if where == "cpu" else [0, 1, 64, 1000, 37440])
    count = rng.choice([0, 1, 3])
    room = size + 64
    one = torch.cat((one, torch.zeros(8 * room, dtype=torch.uint8)))
    unit = rng.choice([1, 8])
    at = torch.tensor([rng.randrange(len(one) - room) // unit * unit for _ in range(count)],
                      dtype=torch.int64)  # fmt: skip
    to = torch.tensor(sorted(rng.sample(range(0, len(one) - room, room // unit * unit), count)),
                      dtype=torch.int64)  # fmt: skip
    two = one.to(where, copy=True)
    three, four = torch.zeros_like(one), torch.zeros_like(two)
    reference.swap(one, three, at, to, size)
    device.swap(two, four, at, to, size)
    same(three, four, "swap")
    if where != "cpu":
        near, far = one.pin_memory(), torch.zeros_like(one).pin_memory()
        four.zero_()
        device.swap(near, four, at, to, size)
        same(three, four, "swap from the host")
        device.swap(two, far, at, to, size)
        torch.cuda.synchronize()
        same(three, far, "swap to the host")
    reference.copy_blocks(one, at, to, size)
    device.copy_blocks(two, at, to, size)
    same(one, two, "copy_blocks")


def checked(rng: Random, where: str) -> None:
    """verify, fingerprint, poison."""
    cut(rng, where)
    made = page(rng, where)
    rows, buffer = rows_of(rng, made, where), buffer_of(rng, made, where)
    stamps = stamps_of(rng, len(rows))
    reference.stamp(buffer, rows, stamps)
    for _ in range(rng.choice([0, 1, 1, 2]) if len(rows) else 0):
        row = rng.randrange(len(rows))
        first = int(rows.starts[row, rng.randrange(rows.starts.shape[1])])
        buffer[first + rng.randrange(min(rows.lengths))] ^= 1 << rng.randrange(8)
    due = stamps if rng.random() < 0.5 else stamps_of(rng, len(rows))
    fields = torch.tensor([rng.choice([[-1, -1, 0, 0], [-1, -1, -1, 0]])]).expand(len(rows), 4)
    if rng.random() < 0.3:
        fields = fields.contiguous()
    there = buffer.to(where, copy=True)
    for one, two, what in zip(reference.verify(buffer, rows, due, fields),
                              device.verify(there, rows, due, fields), ("wrong", "found"),
                              strict=True):  # fmt: skip
        same(one, two, f"verify of {rows.lengths}: {what}")
    same(reference.fingerprint(buffer, rows), device.fingerprint(there, rows),
         f"fingerprint of {rows.lengths}")  # fmt: skip
    for lifted in (False, False, True):
        reference.poison(buffer, rows, lifted=lifted)
        device.poison(there, rows, lifted=lifted)
        same(buffer, there, f"poison of {rows.lengths}")


def coded(rng: Random, where: str) -> None:
    """compress, decompress, index, select."""
    seed = torch.Generator().manual_seed(rng.randrange(1 << 30))
    n = rng.choice([0, 1, 3])
    for d, block, scale in ((512, 128, "fp32"), (448, 64, "ue8m0"), (128, 128, "fp32")):
        values = (torch.randn((n, d), generator=seed) * 10 ** rng.randrange(-5, 4)).to(where)
        one = reference.compress(values, block, scale)
        near(one[:, :d], values.view(n, d // block, block), scale)
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


FAMILIES = {"bytes": (moved, 40), "checks": (checked, 40), "codes": (coded, 6)}

if __name__ == "__main__":
    where = "cuda" if "cuda" in sys.argv else "cpu"
    run, times = FAMILIES[sys.argv[1]]
    times = int(sys.argv[3]) if len(sys.argv) > 3 else times
    for seed in range(times):
        run(Random(seed), where)
    print(f"{times} geometries equal")
