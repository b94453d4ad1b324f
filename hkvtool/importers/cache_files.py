"""Folders of cache files, as vLLM, SGLang and LMCache leave them on a disk: an inventory.

Such a file is raw bytes without a header: its name is all that says what it is, and its length all
that can be checked. Files of one group are of one length; one that is shorter ends before a read of
it does (HKV402), one that is longer was written in another layout (HKV403). A name from which no
reader would ever look is a fault of naming.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hkvtool.importers.foreign import Importer
from hkvtool.importers.lines import Line, Names, declaration
from hkvtool.model.errors import TraceError

_MOST_FILES = 2_000_000
_DEEPEST = 8
_MAX_CONFIG = 1 << 20
_MOST_ODD = 200
"""Files of another length that are declared one by one; the rest is counted."""

_AT_ONCE = 4096

_VLLM = re.compile(r"(.*/)?([0-9a-f]{3})/([0-9a-f]{2})_g(\d{1,6})/([0-9a-f]{16,128})\.bin")
_LMCACHE = re.compile(
    r"(?:.*/)?([^/@]+)@0x([0-9a-fA-F]{1,16})@([0-9a-fA-F]{1,8})@([0-9a-fA-F]{8,128})(?:@[^/]*)?\.data"
)
_SGLANG = re.compile(
    r"(?:.*/)?([0-9a-f]{64})(?:\.([A-Za-z0-9_]{1,32}))?_([^/]+?)(?:_(\d{1,4})_(\d{1,4}))?\.bin"
)
_LOST = re.compile(r".*(_g\d+/[^/]*\.bin|@0x[^/]*\.data)")
"""What was meant to be one of them, by its folder or its mark."""


@dataclass(frozen=True, slots=True)
class _File:
    """One cache file; `wrong` says what its name is wrong in."""

    path: str
    size: int
    engine: str
    space: str
    """Model and rank that it belongs to: hashes of another are other content."""
    group: str
    hash: str
    wrong: str = ""


def sniff(path: Path, head: bytes) -> bool:
    """A folder with a file of one of these names in it."""
    if not path.is_dir():
        return False
    files = _walk(path, most=2000)
    return any(_named(name, size) is not None for name, size in files)


def read(path: Path, names: Names) -> Iterator[Line]:
    """Pools and groups of what lies there, with the hash of each file, and what is wrong."""
    if not path.is_dir():
        raise TraceError(f"{path} is no folder of cache files")
    found: list[_File] = []
    other = 0
    for name, size in _walk(path, most=_MOST_FILES):
        file = _named(name, size)
        if file is None:
            other += 1
        else:
            found.append(file)
    if not found:
        raise TraceError(f"{path}: there is no cache file in it")
    several = len({f.space for f in found if f.group != "misnamed"}) > 1
    groups: dict[str, list[_File]] = {}
    for file in sorted(found, key=lambda f: f.path):
        name = f"{file.space}/{file.group}" if several else file.group
        groups.setdefault(name, []).append(file)
    engines = sorted({f.engine for f in found})
    wrong = sum(bool(f.wrong) for f in found)
    note = f"{len(found):,} cache files, {wrong:,} misnamed, {other:,} other files"
    yield declaration(["layout"], note, engines[0] if len(engines) == 1 else None)
    for group, files in groups.items():
        tokens = _block_tokens(path, files[0]) if files[0].engine == "vllm" else None
        yield from _told(group, files, names, tokens or 1)


def _block_tokens(root: Path, file: _File) -> int | None:
    """Tokens of a block, where vLLM's description of the folder says so."""
    base = re.sub(r"_r\d+$", "", file.space)
    try:
        with (root / base / "config.json").open("rb") as stream:
            described = json.loads(stream.read(_MAX_CONFIG))
        group = described["kv_cache_groups"][int(file.group.removeprefix("group"))]
        tokens = group["tokens_per_block"] * described.get("blocks_per_file", 1)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return tokens if isinstance(tokens, int) and 0 < tokens < 1 << 31 else None


def _told(group: str, files: list[_File], names: Names, tokens: int) -> Iterator[Line]:
    lengths = Counter(f.size for f in files)
    usual, times = lengths.most_common(1)[0]
    pool = f"disk/{group}"
    yield {"ev": "pool", "pool": pool, "medium": "disk", "blocks": len(files)}
    known: Line = {}
    if times > 1 or len(files) == 1:
        known = {"layout": {"page_bytes": usual}}
    yield {
        "ev": "group", "group": group, "form": "compressed", "pool": pool, "block_tokens": tokens,
        "participates": False, **known,
    }  # fmt: skip
    for first in range(0, len(files), _AT_ONCE):
        some = files[first : first + _AT_ONCE]
        line: Line = {
            "ev": "state", "pool": pool, "blocks": list(range(first, first + len(some))),
            "hashes": [names.hash(bytes.fromhex(f.hash)) for f in some],
            "groups": [group] * len(some),
        }  # fmt: skip
        misnamed = [f"{f.path}: {f.wrong}"[:240] for f in some if f.wrong]
        if misnamed:
            line["misnamed"] = misnamed[:100]
        yield line
    if not known:
        return
    odd = [(i, f) for i, f in enumerate(files) if f.size != usual]
    for i, file in odd[:_MOST_ODD]:
        yield from _odd(f"{group}/{i}", file, usual)


def _odd(name: str, file: _File, usual: int) -> Iterator[Line]:
    """A file of another length, as a pool of its own that whoever reads the usual length meets."""
    pool = f"disk/{name}"
    yield {"ev": "pool", "pool": pool, "medium": "disk", "blocks": 1}
    group: Line = {
        "ev": "group", "group": name, "form": "compressed", "pool": pool, "block_tokens": 1,
        "participates": False, "layers": file.path[-200:],
    }  # fmt: skip
    if file.size < usual:
        yield group | {"layout": {"page_bytes": usual, "region_bytes": file.size}}
        return
    yield group | {"layout": {"page_bytes": file.size}}
    yield {
        "ev": "kernel", "kernel": "reader", "group": name, "expects": {"page_bytes": usual},
    }  # fmt: skip


def _named(name: str, size: int) -> _File | None:
    """What a file is by its name; None where it is none of these."""
    vllm = _VLLM.fullmatch(name)
    if vllm:
        space, high, low, group, digits = vllm.groups()
        wrong = "" if digits.startswith(high + low) else f"its hash does not belong in {high}/{low}"
        return _File(
            name,
            size,
            "vllm",
            (space or "").rstrip("/"),
            f"group{int(group)}",
            _even(digits),
            wrong,
        )
    lmcache = _LMCACHE.fullmatch(name)
    if lmcache:
        model, rank, number, digits = lmcache.groups()
        group = f"object{int(number, 16)}" + (f"/rank{int(rank, 16)}" if int(rank, 16) else "")
        return _File(name, size, "lmcache", model, group, _even(digits))
    sglang = _SGLANG.fullmatch(name)
    if sglang:
        digits, part, model, rank, ranks = sglang.groups()
        of = int(ranks or 1)
        wrong = f"rank {int(rank)} of {of}" if rank is not None and int(rank) >= of else ""
        group = (part or "kv") + (f"/rank{int(rank)}" if rank is not None and of > 1 else "")
        return _File(name, size, "sglang", model, group, digits, wrong)
    if _LOST.fullmatch(name):
        engine = "vllm" if name.endswith(".bin") else "lmcache"
        return _File(name, size, engine, "", "misnamed", "00" * 8, "no reader looks for this name")
    return None


def _even(digits: str) -> str:
    return digits.zfill(len(digits) + len(digits) % 2)


def _walk(root: Path, *, most: int) -> Iterator[tuple[str, int]]:
    """Regular files below a folder, by their path from there, with their lengths. Links are not
    followed; what goes away meanwhile is passed over."""
    folders = [("", 0)]
    seen = 0
    while folders:
        inner, depth = folders.pop()
        try:
            entries = list(os.scandir(root / inner))
        except OSError:
            continue
        for entry in sorted(entries, key=lambda e: e.name):
            name = f"{inner}/{entry.name}" if inner else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < _DEEPEST:
                        folders.append((name, depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    seen += 1
                    if seen > most:
                        return
                    yield name, entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue


IMPORTER = Importer("cache-files", "folder of cache files of vLLM, SGLang or LMCache", sniff, read)
