"""SGLang's KV canary: its violation lines, out of any log.

The canary compares what stands beside a token slot with what the request expects there. A line of
it is a proof by bytes that a slot holds something else, so each becomes two fingerprints of one
slot: what was expected, and what was read (HKV906).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hkvtool.importers.foreign import Importer
from hkvtool.importers.lines import Line, Names, declaration, unread
from hkvtool.model.errors import TraceError
from hkvtool.store.lines import open_lines

_MARK = b"kv_canary violation:"
_FIELD = re.compile(rb"(\w+)=(\S{1,200})")
_MOST_LINE = 1 << 16
_MOST = 1_000_000
"""Violations that are kept: a pool is declared before them, and they say how large it is."""


@dataclass(frozen=True, slots=True)
class _Violation:
    group: str
    slot: int
    position: int
    reason: str
    launch: str
    expected: str
    stored: str


def sniff(path: Path, head: bytes) -> bool:
    """A violation among the first lines."""
    return _MARK in head


def read(path: Path, names: Names) -> Iterator[Line]:
    """A pool of token slots for full and sliding attention each, then a pair of fingerprints for
    each violation."""
    found: list[_Violation] = []
    bad: list[Line] = []
    offset = 0
    with open_lines(path) as stream:
        while line := stream.readline(_MOST_LINE):
            place = line.find(_MARK)
            if place >= 0 and len(found) < _MOST:
                try:
                    found.append(_violation(line[place + len(_MARK) :]))
                except (KeyError, ValueError) as e:
                    said = f"no {e.args[0]}" if isinstance(e, KeyError) else "a number is none"
                    bad.append(unread(offset + place, f"a violation with {said}"))
            offset += len(line)
    if not found and not bad:
        raise TraceError(
            f"{path}: there is no kv_canary violation in it", where=f"offset 0 to {offset:,}"
        )
    yield declaration(["bytes"], "violations of SGLang's KV canary; slots are tokens", "sglang")
    groups = sorted({v.group for v in found})
    for group in groups:
        slots = sorted({v.slot for v in found if v.group == group})
        pool = f"gpu/{group}"
        yield {"ev": "pool", "pool": pool, "medium": "gpu", "blocks": slots[-1] + 1}
        form = "swa" if group == "swa" else "compressed"
        yield {"ev": "group", "group": group, "form": form, "pool": pool, "block_tokens": 1}
        yield {"ev": "state", "pool": pool, "blocks": slots}
    yield from bad
    for v in found:
        for at, value in (("publish", v.expected), ("use", v.stored)):
            yield {
                "ev": "fingerprint", "actor": v.launch, "group": v.group, "blocks": [v.slot],
                "at": at, "values": [f"{at}:{names.text(value)}"], "reason": v.reason,
                "position": v.position,
            }  # fmt: skip


def _violation(text: bytes) -> _Violation:
    fields = {k.decode(): v.decode("ascii", "replace") for k, v in _FIELD.findall(text)}
    launch = fields["launch_tag"][:64]
    slot, position = int(fields["slot_idx"]), int(fields["position"])
    if not 0 <= slot < 1 << 31 or not -1 <= position < 1 << 31:
        raise ValueError(slot)
    token, other = fields["stored_token"], fields["expected_token"]
    return _Violation(
        "swa" if "SWA" in launch.upper() else "full",
        slot,
        position,
        fields["fail_reason"][:200],
        launch,
        f"{other} {fields['expected_aux']}",
        f"{token} {fields['stored_chain_hash']}",
    )


IMPORTER = Importer("kv-canary", "SGLang kv-canary violations, in a log", sniff, read)
