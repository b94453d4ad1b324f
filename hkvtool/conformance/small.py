"""Geometries small enough to see through: every form, a few tokens a block."""

from __future__ import annotations

from typing import Any

from hkvtool.engine.geometry import Group, Preset
from hkvtool.model.forms import Form


def group(name: str, form: Form, block: int, **more: Any) -> Group:
    return Group(
        name, form, block, 1, more.pop("dtype", "uint8"), more.pop("page", 64), row_bytes=1, **more
    )


def make(name: str, *groups: Group, **more: Any) -> Preset:
    return Preset(name, "tiny", groups, stride=256, align=1, blocks=64, **more)


PLAIN = make("plain", group("kv", Form.COMPRESSED, 8), partial=True)
INDEXED = make(
    "indexed",
    group("mla", Form.COMPRESSED, 8, table="history"),
    group("idx", Form.INDEXER, 8, serves="mla", table="history", dtype="int8", offset=64),
    draft=2,
)
WINDOWED = make(
    "windowed",
    group("full", Form.COMPRESSED, 8),
    group("swa", Form.SWA, 8, window=12),
    group("sparse", Form.SWA, 4, window=9, sparse=True),
    draft=1,
)
CHUNKED = make(
    "chunked",
    group("full", Form.COMPRESSED, 8),
    group("chunk", Form.SWA, 8, window=32, chunked=True),
)
RECURRENT = make(
    "recurrent",
    group("full", Form.COMPRESSED, 8),
    Group("gdn0", Form.RECURRENT, 8, 1, "float32", 64),
    Group("gdn1", Form.RECURRENT, 8, 1, "float32", 64),
)
COMPRESSING = make(
    "compressing",
    group("c4.state", Form.TAIL, 4, unit=4, overlap=4, serves="c4", sparse=True, dtype="float32"),
    group("c16.state", Form.TAIL, 8, unit=16, serves="c16", sparse=True, dtype="float32"),
    group("c4", Form.COMPRESSED, 16, ratio=4, table="history"),
    group("c16", Form.COMPRESSED, 16, ratio=16, table="history", offset=64),
    group("idx", Form.INDEXER, 16, ratio=4, serves="c4", table="history", offset=128),
    group("swa", Form.SWA, 8, window=12, sparse=True),
    draft=2,
)
SMALL = {p.name: p for p in (PLAIN, INDEXED, WINDOWED, CHUNKED, RECURRENT, COMPRESSING)}
