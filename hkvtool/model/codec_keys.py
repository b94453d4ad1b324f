"""Which bit of a record stands for which key: the part of the byte form that is on disk.

Types and meanings come from `EVENTS`; only the order is kept here, because numbers in other
people's recordings never move. A key that an event gains is appended to its row in the table of
the next version; until then it travels by name, which costs bytes and loses nothing.
"""

from __future__ import annotations

from hkvtool.model.events import EVENTS

CODEC_VERSION = 3
"""Version of the byte form that this code writes; it reads every version up to it."""

EXTRAS = 0
"""Bit of an object with the keys that have no bit of their own."""

_TABLES: dict[int, dict[str, str]] = {
    1: {
        "trace": "step req format engine evidence note actor ts seq",
        "evidence": "step req evidence actor ts seq",
        "state": (
            "step req pool blocks refs gens hashes versions written owners groups free_order "
            "actor ts seq"
        ),
        "pool": "step req pool medium blocks reserved engine zeroed actor ts seq",
        "group": (
            "step req group form pool block_tokens ratio window window_kind sink replayed "
            "overlap slack serves participates table layers layout actor ts seq"
        ),
        "kernel": "step req kernel group expects actor ts seq",
        "limits": (
            "step req group recovering_blocks recovering_bytes stall_steps stall_ns "
            "thrash_trips actor ts seq"
        ),
        "alloc": "step req blocks group pool tokens actor ts seq",
        "touch": "step req blocks pool group owner actor ts seq",
        "free": "step req blocks pool group owner front actor ts seq",
        "publish": "step req group blocks hashes tokens key version codec actor ts seq",
        "unpublish": "step req group blocks hashes reason actor ts seq",
        "slide": "step req group blocks window_start actor ts seq",
        "remap": "step req pool map version actor ts seq",
        "reset": "step req pool actor ts seq",
        "pin": "step req blocks pool group owner actor ts seq",
        "unpin": "step req blocks pool group owner actor ts seq",
        "write": "step req group blocks tokens version index pad part actor ts seq",
        "seal": "step req group blocks version from tokens part actor ts seq",
        "index": "step req group blocks version kv_version tokens part actor ts seq",
        "zero": "step req blocks pool group actor ts seq",
        "copy": "step req src dst group pool src_group dst_group actor ts seq",
        "rollback": "step req to actor ts seq",
        "buffer": "step req name op version valid extent actor ts seq",
        "dispatch": "step req reqs actor ts seq",
        "retire": "step req reqs actor ts seq",
        "lookup": "step req hit blocks tokens hashes key actor ts seq",
        "resume": "step req at blocks route actor ts seq",
        "use": "step req group blocks part tokens gens index pad actor ts seq",
        "select": "step req group entries actor ts seq",
        "store_begin": (
            "step req handle group blocks to peer bytes tokens version kv_version codec index "
            "part hashes key peer_tokens actor ts seq"
        ),
        "load_begin": (
            "step req handle group blocks from peer bytes tokens version kv_version codec "
            "index part hashes key peer_tokens actor ts seq"
        ),
        "store_end": "step req handle ok failed actor ts seq",
        "load_end": "step req handle ok failed actor ts seq",
        "lease": "step req op handle blocks pool actor ts seq",
        "signal": "step req event actor ts seq",
        "wait": "step req event actor ts seq",
        "admit": "step req reason external tenant needs free pool engine actor ts seq",
        "refuse": "step req reason external tenant needs free pool actor ts seq",
        "preempt": "step req reason external tenant needs free pool actor ts seq",
        "abort": "step req reason external tenant needs free pool actor ts seq",
        "finish": "step req reason external tenant needs free pool actor ts seq",
        "capture": "step req graph pointers actor ts seq",
        "launch": "step req graph pointers bypass actor ts seq",
        "rebase": "step req pool group reason pointers layout actor ts seq",
        "weights": "step req version actor ts seq",
        "dropped": "step req count pool reason actor ts seq",
        "wire": "step req kind wseq group hashes medium lane tokens key actor ts seq",
        "fingerprint": "step req group blocks values at actor ts seq",
    },
    2: {
        "group": "table_index states",
        "dispatch": "starts counts tables zeroed copies",
        "admit": "trace_id",
    },
    3: {
        "fingerprint": "part beside",
    },
}  # fmt: skip
"""By version, the keys that each event gained in it, in the order of their bits from 1 on."""


def _rows() -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    for version in sorted(_TABLES):
        for ev, keys in _TABLES[version].items():
            rows[ev] = (*rows.get(ev, ()), *keys.split())
    return rows


KEYS: dict[str, tuple[str, ...]] = _rows()
"""The keys of each event in the order of their bits."""

NAMES_BY_CODE: dict[int, str] = {EVENTS[ev].code: ev for ev in KEYS}
"""The events that have a row, by their stable number."""
