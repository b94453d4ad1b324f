"""The sets of cache groups that a correct engine serves a model with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from .options import Options
from .paging import Pool
from .tables import Group, State, Table
from .tape import Event, Tape, make
from .tiers import Tier
from .windows import Cyclic, Replayed, Ring, Window

WINDOW = 24
CHUNK = 32


def build(tape: Tape, rng: Random, options: Options) -> tuple[list[Pool], list[Table]]:
    """The pools and tables of `options.family`, the tables in the order of their accesses."""
    makers = {
        "full": ("full",),
        "full_swa": ("full", "swa"),
        "swa_only": ("swa",),
        "full_cyclic": ("full", "cyclic"),
        "full_sink": ("full", "sink"),
        "full_replayed": ("full", "replayed"),
        "full_chunked": ("full", "chunked"),
        "full_recurrent": ("full", "state"),
        "full_swa_recurrent": ("full", "swa", "state"),
        "mla": ("mla",),
        "mla_split": ("kv", "ix"),
        "draft": ("draft",),
        "c4": ("c4",),
        "c4_ring": ("ring", "c4r"),
    }[options.family]
    bt = rng.choice((8, 16))
    pools: dict[str, Pool] = {}

    def pool(kind: str) -> Pool:
        name = "gpu" if options.shared_pool else f"gpu_{kind}"
        if name not in pools:
            share = len(makers) if options.shared_pool else 1
            size = ((230 if options.tight else 400 if options.tier else 1280) // bt + 4) * share
            if name in ("gpu_state", "gpu_ring"):
                size = 20 if options.tight else 80
            ids = list(range(1, size))
            if rng.random() < 0.5:
                rng.shuffle(ids)
            pools[name] = Pool(tape, name, "gpu", ids, size, reserved=[0])
        return pools[name]

    tables = [_table(tape, kind, pool(kind), bt, options) for kind in makers]
    if options.layout:
        for table in tables:
            _lay_out(table, rng.choice((0, 1)))
    if options.family == "mla_split":
        tables[1].beside = tables[0]
        tables[0].states_versions = True
    for table in tables:
        table.drafts = options.drafts
        table.states_gens = options.gens
        table.alloc_tokens = rng.random() < 0.3 and not isinstance(table, State)
    return list(pools.values()), tables


def _lay_out(table: Table, spare_rows: int) -> None:
    """Give each group bytes of its own: whole rows, a padded stride, a region for every block."""
    for n, group in enumerate(table.groups):
        row = 128 * (n + 1)
        entries = table.bt if group.form == "tail" else table.bt // group.ratio
        page = row * entries
        stride = page + row * spare_rows
        group.declared["layout"] = {
            "dtype": "bfloat16", "codec": "identity/1", "row_bytes": row, "page_bytes": page,
            "stride_bytes": stride, "base": 1 << 30, "align": 128,
            "region_bytes": stride * table.pool.declared["blocks"],
        }  # fmt: skip


def kernels(tables: Sequence[Table]) -> Iterator[Event]:
    """A reader for each group that expects what its producer writes."""
    for table in tables:
        for group in table.groups:
            layout = group.declared.get("layout")
            if layout is not None:
                same = ("dtype", "codec", "row_bytes", "page_bytes", "stride_bytes")
                expects = {k: layout[k] for k in same}
                yield make("kernel", kernel=f"read_{group.name}", group=group.name, expects=expects)


def _table(tape: Tape, kind: str, pool: Pool, bt: int, options: Options) -> Table:
    if kind in ("swa", "chunked", "cyclic", "sink", "replayed"):
        form = {"cyclic": Cyclic, "replayed": Replayed}.get(kind, Window)
        window = form(tape, kind, pool, bt, [Group(kind, "swa")])
        window.chunked = kind == "chunked"
        window.window = CHUNK if window.chunked else WINDOW
        declared: dict[str, Any] = {"window": window.window}
        if kind == "sink":
            window.sink = declared["sink"] = 4
        if kind == "replayed":
            declared["replayed"] = True
        if window.chunked:
            declared["window_kind"] = "chunked"
        elif options.drafts:
            window.slack = declared["slack"] = options.drafts
        window.groups[0].declared = declared
        return window
    if kind == "state":
        return State(tape, "mamba", pool, 2 * bt, [Group("mamba", "recurrent")])
    if kind == "ring":
        group = Group("cs", "tail", ratio=4, overlap=4)
        group.declared = {"overlap": 4, "serves": "c4"}
        return Ring(tape, "cs", pool, 8, [group])
    groups = {
        "full": [Group("full", "compressed")],
        "kv": [Group("kv", "compressed")],
        "ix": [Group("ix", "indexer", served="kv", declared={"serves": "kv"})],
        "mla": [
            Group("mla", "compressed", declared={"table": "t0"}),
            Group("idx", "indexer", served="mla", declared={"table": "t0", "serves": "mla"}),
        ],
        "draft": [
            Group("full", "compressed"),
            Group("eagle", "compressed", declared={"table": "full", "serves": "full"}),
        ],
        "c4": [
            Group("c4", "compressed", ratio=4, tail="c4tail", declared={"ratio": 4, "table": "t4"}),
            Group("c4tail", "tail", ratio=4, overlap=4,
                  declared={"overlap": 4, "table": "t4", "serves": "c4"}),
            Group("c4idx", "indexer", ratio=4, served="c4",
                  declared={"ratio": 4, "table": "t4", "serves": "c4"}),
        ],
        "c4r": [
            Group("c4", "compressed", ratio=4, tail="cs", declared={"ratio": 4}),
            Group("c4idx", "indexer", ratio=4, served="c4",
                  declared={"ratio": 4, "table": "c4", "serves": "c4"}),
        ],
    }[kind]  # fmt: skip
    return Table(tape, groups[0].name, pool, bt, groups)


def declarations(
    options: Options, pools: Sequence[Pool], tables: Sequence[Table], far: Tier | None,
    evidence: Sequence[str],
) -> list[Event]:  # fmt: skip
    """The head of a trace: what was recorded, which pools and groups there are."""
    lines: list[Event] = [make("trace", format="hkv/1", engine="correct", evidence=list(evidence))]
    lines += [make("pool", **pool.declared) for pool in pools]
    groups = [(g, t) for t in tables for g in t.groups]
    for group, table in sorted(groups, key=lambda pair: "serves" in pair[0].declared):
        keys: dict[str, Any] = {
            "group": group.name, "form": group.form, "pool": table.pool.name,
            "block_tokens": table.bt, **group.declared,
        }  # fmt: skip
        lines.append(make("group", **keys))
    if far is not None:
        lines += far.declarations(tables)
    return lines
