"""The rule catalogue: every finding carries one of these codes, and a code never changes meaning.

The hundreds digit says where a rule comes from: the four validation layers (1xx to 4xx), the
constraints on admission, routing and pointers (5xx to 8xx), and the integrity of the evidence
itself (9xx).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """`error`: state is wrong or a read returns wrong bytes; `warning`: correct but costly, or
    a hazard not yet hit; `info`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        return {"error": 2, "warning": 1, "info": 0}[self.value]


FAMILIES: dict[int, str] = {
    1: "whole-block validation",
    2: "kernel ABI validation",
    3: "multi-group intersection",
    4: "byte and hardware alignment",
    5: "admission cap",
    6: "form routing",
    7: "TOCTOU and pointer consistency",
    8: "static topology",
    9: "evidence integrity",
}
"""Name of each family by its hundreds digit."""

MISSING_FORM = {
    "compressed": "HKV301",
    "tail": "HKV302",
    "swa": "HKV303",
    "indexer": "HKV304",
    "recurrent": "HKV306",
    "on_disk": "HKV305",
}
"""The code that says a group of that form could not resume."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    `needs` is a conjunction of alternatives: ``(("host",), ("step", "stream"))`` reads "host,
    and step or stream".
    """

    code: str
    name: str
    fires: str
    needs: tuple[tuple[str, ...], ...]
    fix: str
    severity: Severity = Severity.ERROR

    @property
    def family(self) -> str:
        return FAMILIES[int(self.code[3])]

    def missing(self, evidence: frozenset[str]) -> tuple[str, ...]:
        """Evidence classes that would make the rule evaluable, empty where it is."""
        return tuple(" or ".join(alt) for alt in self.needs if not evidence.intersection(alt))


def _needs(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(part.split("|")) for part in text.split())


_W = Severity.WARNING

_CATALOGUE: tuple[tuple[str, str, str, str, str, Severity], ...] = (
    ("HKV101", "incomplete-block",
     "a hit, resume, store or use takes a block for complete while some of its token slots were never written in this generation, and no write that comes before the reader fills them",
     "host", "count a block as cached only once every slot was written: use the number of computed tokens, not of scheduled or sampled ones", Severity.ERROR),
    ("HKV102", "fractured-prefix",
     "a resume or use covers [0,t) but a block of a full-history group in it is missing, freed, belongs to another sequence, or no live hash led to it at the hit or the resume",
     "host", "take the smallest per-group hit as the resume point, and hold a reference on every block from the lookup on", Severity.ERROR),
    ("HKV103", "published-before-written",
     "something relies on a published hash (a resume and its use, a store) and the write that fills the block is not ordered before that reader, or never comes; a warning where only an announcement on the wire runs ahead. Publishing early is by itself no fault",
     "host step", "withdraw the hash when the write is cancelled, and let readers wait for the step or load that fills the block", Severity.ERROR),
    ("HKV104", "key-domain",
     "equal hashes for unequal inputs, or a key that lacks an input it must hold (LoRA, salt, media, weights version, seed)",
     "key", "hash every input the content depends on, each under its own name", Severity.ERROR),
    ("HKV105", "stale-generation",
     "a hit, resume, store or use leads to a block that was re-allocated, rewritten or re-weighted since its hash was published",
     "host", "drop every hash that leads to a block when the block is re-allocated or its content replaced", Severity.ERROR),
    ("HKV201", "abi-dtype",
     "producer and consumer disagree on dtype or scale rows (`row_bytes`, `scale_bytes`)",
     "layout", "build both sides from one layout description and compare it at registration", Severity.ERROR),
    ("HKV202", "abi-order",
     "producer and consumer disagree on axis order, K/V packing or shard",
     "layout", "pass the axis order with the tensor instead of assuming it", Severity.ERROR),
    ("HKV203", "abi-codec",
     "producer and consumer disagree on compression codec or its version, or on `ratio`",
     "layout", "make the codec version part of the layout and of the cache key", Severity.ERROR),
    ("HKV204", "abi-block",
     "block sizes in tokens disagree, or the kernel's block does not divide the manager's",
     "layout", "choose a manager block that is a multiple of the kernel's", Severity.ERROR),
    ("HKV205", "abi-hash",
     "hash algorithm, seed or unit differ between the sides that exchange hashes",
     "layout", "agree on algorithm, seed and block size before exchanging hashes", Severity.ERROR),
    ("HKV301", "compressed-missing",
     "resume at t but a compressed group cannot, other than by 101, 102, 105: its content is of another version than was published, or of another codec than the group's",
     "host", "compare content and codec version of every compressed block before it counts as a hit", Severity.ERROR),
    ("HKV302", "tail-missing",
     "resume at t but the tail of the open compression unit is gone or another sequence's; also a seal whose `from` lacks a token of the range it seals",
     "host", "keep (or save again) the uncompressed tokens of the open unit and its overlap until the unit is sealed", Severity.ERROR),
    ("HKV303", "window-missing",
     "resume at t but the sliding window is expired, short or overwritten",
     "host", "check the window of every window group at the resume point, or recompute it", Severity.ERROR),
    ("HKV304", "index-out-of-sync",
     "indexer rows are missing or of another KV version than the data they route to; or a selection points at an entry that is not live, not written or not yet causal",
     "host", "write indexer rows whenever the KV they route to is written, and hit only where both agree", Severity.ERROR),
    ("HKV305", "not-migrated",
     "a group's blocks are still on_disk or recovering, and no route, or no ended load, makes them resident before the use",
     "host", "state the route `load` and resume only after the load has ended with ok", Severity.ERROR),
    ("HKV306", "recurrent-missing",
     "no state written at exactly t in the slot that would be used, though the group has states elsewhere or none was brought",
     "host", "resume only where a recurrent state exists at exactly the resume point", Severity.ERROR),
    ("HKV307", "component-left-behind",
     "a store, load, move or clear took some of the components that must travel together, not all; judged when the incomplete copy is loaded, moved or resumed from, or its source is gone",
     "host layout", "move every component that serves the group (index, scales, draft, state) in the same operation", Severity.ERROR),
    ("HKV308", "reuse-vetoed",
     "matched tokens were thrown away because one group could not resume",
     "host", "give the limiting group more checkpoints, or keep its blocks longer", _W),
    ("HKV401", "misaligned",
     "base, offset or stride is not a multiple of the required alignment",
     "layout", "round the stride up to the alignment that the kernel or copy engine asks for", Severity.ERROR),
    ("HKV402", "out-of-region",
     "a block's payload, or a transfer's descriptor, ends outside the registered region",
     "layout", "register stride times blocks, not payload times blocks", Severity.ERROR),
    ("HKV403", "stride-mismatch",
     "page, stride, layer stride or offset of the two sides disagree: addresses are computed from the payload or logical shape where the stride differs",
     "layout", "address by the stride of the allocation, not by the shape", Severity.ERROR),
    ("HKV404", "straddle",
     "an entry or kernel block crosses a page boundary, or a transfer bound falls inside a stored entry, or inside a block other than at the end of what is written",
     "layout", "size pages for whole entries, scales included, and cut transfers at entry boundaries", Severity.ERROR),
    ("HKV501", "admission-cap",
     "more blocks recovering at once than the cap",
     "host", "count blocks in flight against the cap before another load starts", Severity.ERROR),
    ("HKV502", "migration-storm",
     "more transfer bytes in flight than the budget; or, as a warning, the same content out and in again without a use between",
     "host", "check the budget against everything in flight, and keep what was just brought in", Severity.ERROR),
    ("HKV503", "no-progress",
     "requests wait for blocks that only waiting requests hold; or the patience passes with work waiting while no request advances and no transfer ends; or a wait is never signalled",
     "host step", "reserve all blocks a request needs before it holds any, or let a waiting request give its blocks back", Severity.ERROR),
    ("HKV504", "preemption-without-yield",
     "a preemption made to satisfy a refused request frees nothing before that request is refused again",
     "host", "wait for deferred frees of the victim before choosing the next one", Severity.ERROR),
    ("HKV601", "cross-form-reuse",
     "a block of one form is read or reused directly as another form",
     "host", "keep one block table a group, and never carry ids from one to another", Severity.ERROR),
    ("HKV602", "wrong-route",
     "the recovery route does not fit the form (reuse of an on_disk block, reindex of a tail, decompress of a window)",
     "host", "choose the route by the form of the group, not by the codec of the pool", Severity.ERROR),
    ("HKV603", "read-unreadable",
     "a use of a block that is on_disk or recovering",
     "host", "let the use wait for the end of the load", Severity.ERROR),
    ("HKV604", "dirty-reuse",
     "a block changes form or dtype and is read before it was zeroed or fully overwritten",
     "host", "zero a block when it changes form or dtype", Severity.ERROR),
    ("HKV605", "transfer-unresolved",
     "a transfer has no, or two, terminal states; or its failure names no block and the request went on; or blocks it held are never released",
     "host", "end every transfer exactly once, name the blocks that failed, and release what it held", Severity.ERROR),
    ("HKV701", "check-use-changed",
     "between the check (lookup or resume) and the use, the block changed generation, version or form, by an event that the check did not see",
     "host", "hold a reference from the check to the use, or check again", Severity.ERROR),
    ("HKV702", "overwrite-under-reader",
     "a write is not ordered after an earlier read of the same bytes by another owner or generation",
     "stream|step", "let the writer wait for the reader (event, retire or end of the store) before the block is reused", Severity.ERROR),
    ("HKV703", "realloc-under-writer",
     "a block with an unfinished load, zero or compute write goes to another owner whose accesses are not ordered after it",
     "stream|step", "keep the block until the writer has ended or is known to be cancelled", Severity.ERROR),
    ("HKV704", "refcount",
     "a reference or pin count below zero, a double free, a free block that is referenced, a pinned block evicted or reused, one block listed twice for one owner, sums that do not add up, a dispatched step with a block that is then free or only another request's",
     "host", "release a block once for each time it was taken", Severity.ERROR),
    ("HKV705", "lease-expired",
     "a read of remote or lent bytes ends after its lease, unverified",
     "lease", "renew the lease, or verify it when the transfer ends", Severity.ERROR),
    ("HKV706", "buffer-mutated",
     "a metadata or staging buffer changes before its reader has read it, or a read takes more than is valid",
     "stream|host", "give each step in flight a buffer of its own, or wait for the reader", Severity.ERROR),
    ("HKV707", "stale-map",
     "the place addressed is not where the current map puts that block",
     "map", "translate block ids through the current map in every path, the draft's too", Severity.ERROR),
    ("HKV708", "shared-write",
     "a published slot, or a block with count above 1, is written without copy-on-write",
     "host", "copy the block before writing into it", Severity.ERROR),
    ("HKV709", "unordered-writers",
     "two writes to one block are not ordered with each other",
     "stream", "order the two writers by an event, or take the block off one writer's list", Severity.ERROR),
    ("HKV801", "stale-capture",
     "a launch whose baked-in pointer, constant or key is not the live one",
     "graph", "capture again after addresses or constants change, and put every constant into the graph's key", Severity.ERROR),
    ("HKV802", "null-row",
     "padding rows write a live block or read a live or never-initialised one; a null, -1 or stale row reaches a kernel as a real one",
     "host graph", "point padding rows at the null block, keep it zeroed, and clear table rows when the batch shrinks", Severity.ERROR),
    ("HKV803", "migration-in-capture",
     "a transfer is in flight on a block that a capture or launch reads, without an edge",
     "graph", "wait for transfers before a graph is captured or launched", Severity.ERROR),
    ("HKV804", "topology-changed",
     "layout, pool size or addresses changed and something other than a launch still uses the old ones",
     "graph|layout", "drain transfers and background threads before memory is released or moved", Severity.ERROR),
    ("HKV901", "wire-order",
     "a consumer applied KV events with a gap, twice, or out of order",
     "wire", "on a gap ask for a replay and apply it before newer events, or start over", Severity.ERROR),
    ("HKV902", "wire-diverged",
     "at the end of the trace, folding the wire events differs from the pool's published hashes",
     "wire host", "announce every publish and removal with group and medium, and apply them by both", Severity.ERROR),
    ("HKV903", "events-dropped",
     "the recorder dropped events, or the sequence of a lane jumps; state after it is uncertain",
     "", "give the recorder a larger ring, or record less", _W),
    ("HKV904", "leak-at-end",
     "after every request and transfer has ended, blocks are still referenced by nobody who could release them",
     "host", "release the blocks of every group on every way a request can end", Severity.ERROR),
    ("HKV905", "malformed",
     "an event that is unknown, ill-typed or impossible as written",
     "", "correct the writer; the event was kept and took part in nothing", Severity.ERROR),
    ("HKV906", "bytes-differ",
     "fingerprints of one content (same block version, or source and destination of one transfer or copy) differ",
     "bytes", "find what wrote the block between the two fingerprints", Severity.ERROR),
)  # fmt: skip

RULES: dict[str, Rule] = {
    code: Rule(code, name, fires, _needs(needs), fix, severity)
    for code, name, fires, needs, fix, severity in _CATALOGUE
}
"""Every rule by code."""
